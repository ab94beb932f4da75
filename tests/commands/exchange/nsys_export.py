"""Exports of Nsight Systems, as `nsys export --type sqlite` writes them, made by hand.

Tables and columns are those of "SQLite Schema Reference" (Nsight Systems' user guide); payloads are those of NCCL's
src/include/nvtx_payload_schemas.h behind a header of 32 bytes."""
import sqlite3
import struct

PUSH_POP = 59  # ENUM_NSYS_EVENT_TYPE
DOMAIN = 2
STATIC = 1 << 24  # NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START
INT, UINT64, SIZE = 5, 18, 22  # NVTX_PAYLOAD_ENTRY_TYPE_*
COMM = ("NCCL communicator ID", UINT64)
BYTES = ("Message size [bytes]", SIZE)
SCHEMAS = {  # by call: the number of its schema and its entries
    "ncclCommInitRankConfig": (11, [COMM, ("No. of ranks", INT), ("Rank", INT), ("CUDA device", INT)]),
    "ncclAllGather": (4, [COMM, BYTES]), "ncclAlltoAll": (16, [COMM, BYTES]),
    "ncclAllReduce": (5, [COMM, BYTES, ("Reduction operation", STATIC + 24)]),
    "ncclReduceScatter": (7, [COMM, BYTES, ("Reduction operation", STATIC + 24)]),
    "ncclSend": (9, [COMM, BYTES, ("Peer rank", INT)]), "ncclRecv": (10, [COMM, BYTES, ("Peer rank", INT)])}

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
  start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
  start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (
  start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
  int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
  jsonText TEXT, binaryData TEXT);
CREATE TABLE NVTX_PAYLOAD_SCHEMAS (
  domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, flags INTEGER, numEntries INTEGER, payloadSize INTEGER,
  alignTo INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (
  domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT,
  description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER);
"""


def layout(entries):
    """The offsets of a struct's members, and its size."""
    at, offsets = 0, []
    for _, kind in entries:
        size = 8 if kind in (UINT64, SIZE) else 4
        at = (at + size - 1) // size * size
        offsets.append(at)
        at += size
    return offsets, (at + 7) // 8 * 8


class Thread:
    """A thread of a rank, whose clock goes on with every call."""

    def __init__(self, export, pid, device, tid=None):
        self.export, self.device = export, device
        self.global_pid = 1 << 56 | pid << 24  # hardware 8 bits, machine 8, process 24, thread 24
        self.global_tid = self.global_pid | (tid or pid & 0xFFFFFF)
        self.now, self.gpu = 1_000_000, 5_000_000

    def string(self, text):
        return self.export.string(text)

    def range(self, text, inside=(), payload=None, registered=True):
        """A range around what the functions `inside` do."""
        start = self.now
        self.now += 100
        for step in inside:
            step()
        self.now += 100
        self.export.rows.append(("NVTX_EVENTS", {
            "start": start, "end": self.now, "eventType": PUSH_POP, "text": None if registered else text,
            "globalTid": self.global_tid, "textId": self.string(text) if registered else None,
            "domainId": DOMAIN if payload else 0, "binaryData": payload}))
        self.now += 10

    def kernel(self, name, us, stream=7, gap_ns=1000):
        """Launches a kernel that runs behind those before it."""
        self.export.correlation += 1
        start = max(self.now, self.gpu) + gap_ns
        self.gpu = start + round(us * 1000)
        self.export.rows += [
            ("CUPTI_ACTIVITY_KIND_RUNTIME", {
                "start": self.now, "end": self.now + 50, "eventClass": 0, "globalTid": self.global_tid,
                "correlationId": self.export.correlation, "nameId": self.string("cudaLaunchKernel_v7000"),
                "returnValue": 0}),
            ("CUPTI_ACTIVITY_KIND_KERNEL", {
                "start": start, "end": self.gpu, "deviceId": self.device, "contextId": 1, "streamId": stream,
                "correlationId": self.export.correlation, "globalPid": self.global_pid,
                "demangledName": self.string(name), "shortName": self.string(name.split("(")[0].split("<")[0])})]
        self.now += 60

    def operator(self, text, kernels):
        self.range(text, [lambda k=k: self.kernel(*k) for k in kernels], registered=False)

    def nccl(self, call, kernels=(), **values):
        """A call of NCCL with its payload; the kernels are launched inside it."""
        self.range(call, [lambda k=k: self.kernel(*k) for k in kernels], payload(call, values))


def payload(call, values):
    schema, entries = SCHEMAS[call]
    offsets, size = layout(entries)
    body = bytearray(size)
    for (name, kind), offset in zip(entries, offsets):
        value = values.get(name, 0)
        struct.pack_into("<Q" if kind in (UINT64, SIZE) else "<I", body, offset, value)
    return struct.pack("<IIIIQQ", DOMAIN, 0, STATIC + schema, 0, size, 32 + size) + bytes(body)


class Export:
    def __init__(self, host="node-1"):
        self.host, self.rows, self.correlation, self.strings = host, [], 0, {}

    def thread(self, pid, device, **more):
        return Thread(self, pid, device, **more)

    def string(self, text):
        return self.strings.setdefault(text, len(self.strings) + 1)

    def write(self, path, without=(), change=""):
        database = sqlite3.connect(path)
        database.executescript(TABLES)
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.22.1')")
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Hostname', 'Hostname', 0, ?)", (self.host,))
        for table, row in self.rows:
            columns = ", ".join(f'"{c}"' for c in row)
            database.execute(f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(row))})",
                             tuple(row.values()))
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, text) for text, n in self.strings.items()])
        for schema, entries in SCHEMAS.values():
            offsets, size = layout(entries)
            database.execute("INSERT INTO NVTX_PAYLOAD_SCHEMAS VALUES (?, ?, NULL, 1, NULL, ?, ?, NULL)",
                             (DOMAIN, STATIC + schema, len(entries), size))
            database.executemany(
                "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, NULL, ?, ?, NULL, NULL, ?)",
                [(DOMAIN, STATIC + schema, i, kind, name, offset or None)
                 for i, ((name, kind), offset) in enumerate(zip(entries, offsets))])
        for table in without:
            database.execute(f"DROP TABLE {table}")
        if change:
            database.executescript(change)
        database.commit()
        database.close()
        return str(path)
