"""usage: nsys_test.py PROGRAM

Exports of Nsight Systems as records: what comes out of `fit` is the line that went in, and each sample is what SQL over
the same file says."""
import gzip
import pathlib
import shutil
import sqlite3
import struct
import unittest

from nsys_export import Export
from program import SIZES, ProgramTest, cases_of, main

COMM = "NCCL communicator ID"
BYTES = "Message size [bytes]"
RANKS = "No. of ranks"
GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN"


def gemm(thread, m, k, n, us, kernel=GEMM, operator="aten::mm", field=", op_id = 7"):
    thread.operator(f"{operator}{field}, sizes = [[{m}, {k}], [{k}, {n}]]", [(kernel, us)])


def alltoall(thread, size, us, comm, ranks=8):
    """As PyTorch calls NCCL: a message to and from each rank, and a kernel at the group's end."""
    def group():
        thread.range("ncclGroupStart")
        for _ in range(ranks):
            thread.nccl("ncclSend", **{COMM: comm, BYTES: size // ranks})
            thread.nccl("ncclRecv", **{COMM: comm, BYTES: size // ranks})
        thread.range("ncclGroupEnd", [lambda: thread.kernel(
            "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", us, 20)])
    thread.range("record_param_comms", [group])


def fill(export, ranks=8, late_us=0, known=True, first=0):
    """The ranks of one node; the collectives of each but the last wait for it."""
    for rank in range(ranks):
        thread = export.thread(4000 + rank, rank)
        wait = late_us if rank + 1 < ranks else 0
        if known:
            thread.nccl("ncclCommInitRankConfig", **{COMM: 77, RANKS: 8, "Rank": first + rank, "CUDA device": rank})
        for size in SIZES:
            alltoall(thread, size, 20 + 3e-4 * size + wait, 77)
            thread.nccl("ncclAllGather", [("ncclDevKernel_AllGather_RING_LL(...)", 15 + 5e-5 * size + wait, 20)],
                        **{COMM: 77, BYTES: size // 8})
            thread.nccl("ncclReduceScatter", [("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)",
                                               16 + 6e-5 * size + wait, 20)], **{COMM: 77, BYTES: size // 8})
            thread.nccl("ncclAllReduce", [("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)", 30 + 1e-4 * size + wait,
                                           20)], **{COMM: 77, BYTES: size})
        if rank == 0:
            for n in range(1, 12):
                gemm(thread, 256 * n, 512, 1024, 5 + 2e-9 * 256 * n * 512 * 1024)
            thread.operator("aten::_flash_attention_forward, seq = 3, sizes = [[1, 8, 64], [], []]",
                            [("void flash_fwd_kernel<Traits>(Params)", 50)])
            thread.operator("aten::add_, seq = 4, sizes = [[512, 512], [512, 512], []]",
                            [("void at::native::vectorized_elementwise_kernel<4>(int)", 3)])
    return export


def samples_by_sql(*paths):
    """Every collective and GEMM of exports of PyTorch, by the definition of the tables, in no order: (operation, bytes
    or FLOPs) and seconds."""
    found = []
    for path in paths:
        database = sqlite3.connect(path)
        sizes = dict(database.execute("SELECT globalTid >> 24, CAST(COUNT(*) AS INT) FROM NVTX_EVENTS GROUP BY 1"))
        ranks = len(sizes)
        kernels = database.execute(
            """SELECT k.start, k."end", s.value, r.globalTid, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
               JOIN StringIds s ON s.id = k.demangledName
               JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                 ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24""").fetchall()
        for start, end, name, tid, launch in kernels:
            around = database.execute(
                """SELECT n.start, n."end", COALESCE(n.text, s.value), n.binaryData FROM NVTX_EVENTS n
                   LEFT JOIN StringIds s ON s.id = n.textId
                   WHERE n.globalTid = ? AND n.start <= ? AND n."end" >= ? ORDER BY n.start DESC""",
                (tid, launch, launch)).fetchall()
            text = around[0][2]
            if text == "ncclGroupEnd":
                size = sum(struct.unpack_from("<Q", row[0], 40)[0] for row in database.execute(
                    """SELECT n.binaryData FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId
                       WHERE s.value = 'ncclSend' AND n.globalTid = ? AND n.start > ? AND n."end" < ?""",
                    (tid, around[1][0], around[1][1])))
                found.append((("alltoall", size), (end - start) * 1e-9))
            elif text.startswith("nccl"):
                size = struct.unpack_from("<Q", around[0][3], 40)[0]
                op = {"ncclAllGather": "allgather", "ncclReduceScatter": "reducescatter", "ncclAllReduce": "allreduce"}
                found.append(((op[text], size * (1 if text == "ncclAllReduce" else ranks)), (end - start) * 1e-9))
            elif text.startswith("aten::mm"):
                (m, k), (_, n) = eval(text[text.index("[["):])
                found.append((("gemm", 2 * m * k * n), (end - start) * 1e-9))
        database.close()
    return found


class Nsys(ProgramTest):
    def write(self, name, export, **more):
        return export.write(self.path(name), **more)

    def imported(self, *files, flags=(), name="r.jsonl"):
        said = self.said("import", "nsys", *files, *flags, "-o", name, "--overwrite")
        return said, cases_of(self.path(name))

    def test_ranks_of_a_node_need_no_flags(self):
        path = self.write("t.sqlite", fill(Export(), late_us=400))
        said, cases = self.imported(path)
        self.assertIn("t.sqlite (process 4000, GPU 0): 44 (", said)
        self.assertIn("11 (", said)
        self.assertIn("attention 1 (50.0 us)", said)
        self.assertIn("of 1 node x 8 ranks", said)
        rows = self.fitted(self.path("r.jsonl"))
        for row, alpha_us, beta in (("alltoall intra 8", 20, 3e-10), ("allgather intra 8", 15, 5e-11),
                                    ("reducescatter intra 8", 16, 6e-11), ("allreduce intra 8", 30, 1e-10)):
            self.assertAlmostEqual(rows[row]["alpha_s"], alpha_us * 1e-6, delta=3e-9)
            self.assertAlmostEqual(rows[row]["beta"], beta, delta=beta * 1e-3)
        self.assertAlmostEqual(rows["gemm bfloat16"]["alpha_s"], 5e-6, delta=2e-9)
        self.assertAlmostEqual(rows["gemm bfloat16"]["beta"], 1e-15, delta=1e-18)
        expected = {}
        for (op, size), seconds in samples_by_sql(path):  # each of a size once a rank: the last to come counts
            expected[op, size] = min(seconds, expected.get((op, size), 1))
        self.assertEqual(len(expected), 4 * len(SIZES) + 11)
        found = {(c["parameters"]["op"], c["parameters"].get("bytes", c["parameters"].get("flops"))):
                 c["samples"]["seconds"] for c in cases.values()}
        self.assertEqual(set(found), set(expected))
        for key, seconds in found.items():
            self.assertEqual(len(seconds), 1)
            self.assertAlmostEqual(seconds[0][0], expected[key], delta=1e-15)

    def test_nodes_are_told_by_their_hosts(self):
        files = [self.write(f"{host}.sqlite", fill(Export(host), 4, first=first)) for host, first in
                 (("a", 0), ("b", 4))]
        said, cases = self.imported(*files)
        self.assertIn("of 2 nodes x 4 ranks", said)
        self.assertIn(f"op/alltoall/inter/8/{SIZES[0]}", cases)
        said = self.refused("import", "nsys", files[0], "-o", "r2.jsonl")  # half of the ranks
        self.assertRegex(said, r"--network: found none, and .*a.sqlite")
        _, cases = self.imported(files[0], flags=("--network", "inter", "--nodes", 2, "--ranks-per-node", 4))
        self.assertIn(f"op/alltoall/inter/8/{SIZES[0]}", cases)

    def test_ranks_are_asked_for(self):
        path = self.write("t.sqlite", fill(Export(), known=False))
        self.assertRegex(self.refused("import", "nsys", path, "-o", "r.jsonl"),
                         "--ranks: found none, and .*t.sqlite lacks the ncclCommInit of communicator 0x4d")
        _, cases = self.imported(path, flags=("--ranks", 8))
        self.assertIn(f"op/allgather/intra/8/{SIZES[-1]}", cases)

    def test_ranks_that_are_apart_are_refused(self):
        export = fill(Export(), 8)
        export.thread(4000, 0).nccl("ncclAllReduce", [("ncclDevKernel_AllReduce(...)", 5, 20)], **{COMM: 77, BYTES: 64})
        said = self.refused("import", "nsys", self.write("t.sqlite", export), "-o", "r.jsonl")
        self.assertRegex(said, r"found 12 ncclAllReduce of communicator 0x4d, and 11 in .*expected ranks that recorded")
        path = self.write("one.sqlite", fill(Export()))
        shutil.copy(path, self.path("same.sqlite"))
        self.assertIn("found process 4000, GPU 0 of host 'node-1' a second time",
                      self.refused("import", "nsys", path, self.path("same.sqlite"), "-o", "r.jsonl"))

    def gemms(self, *calls, flags=()):
        export = Export()
        thread = export.thread(1, 0)
        for call in calls:
            thread.operator(*call)
        path = self.folder / "g.sqlite"
        path.unlink(missing_ok=True)
        said, cases = self.imported(self.write("g.sqlite", export), flags=("--nodes", 1, "--ranks-per-node", 1, *flags))
        return said, sorted((c["parameters"]["dtype"], c["parameters"]["flops"]) for c in cases.values())

    def test_the_operator_tells_a_gemm(self):
        size = ", sizes = [[64, 32], [32, 48]]"
        said, found = self.gemms(
            ("aten::mm, seq = 5" + size, [("made_up_bf16_name", 25)]),
            ("aten::addmm, sizes = [[48], [64, 16], [16, 48], [], []]",
             [("ampere_fp16_s16816gemm_fp16_128x64_tn", 25)]),
            ("aten::bmm, op_id = 9, sizes = [[8, 64, 32], [8, 32, 16]], input_op_ids = [(8,0), (7,1)]",
             [("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8", 25)]),
            ("aten::add, seq = 6" + size, [("sm90_xmma_gemm_bf16bf16", 25)]),  # an operator that multiplies nothing
            ("my_layer", [("cutlass_80_tensorop_bf16_s16816gemm", 25)]),  # no operator: its sizes are unknown
            ("aten::mm, seq = 7", [("nvjet_hsh_64x32", 25)]))  # without sizes
        self.assertEqual(found, [("bfloat16", 2.0 * 64 * 32 * 48), ("float16", 2.0 * 64 * 16 * 48),
                                 ("float32", 2.0 * 8 * 64 * 32 * 16)])
        self.assertIn("without sizes 2 (50.0 us), others 1 (25.0 us)", said)

    def test_kernels_of_one_operator_are_one_gemm(self):
        said, found = self.gemms(("aten::mm, seq = 5, sizes = [[64, 4096], [4096, 48]]", [
            ("nvjet_sm100_tst_mma_64x48_splitK", 20), ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", 5)]))
        self.assertEqual(found, [("bfloat16", 2.0 * 64 * 4096 * 48)])
        [case] = cases_of(self.path("r.jsonl")).values()
        self.assertAlmostEqual(case["samples"]["seconds"][0][0], 25e-6, delta=1e-12)

    def test_types_that_no_name_tells(self):
        call = ("aten::mm, sizes = [[64, 32], [32, 48]]", [("my_gemm", 25)])
        narrow = ("aten::_scaled_mm, sizes = [[64, 32], [32, 48]]", [("nvjet_qqtst_128x64", 25)])
        known = ("aten::mm, sizes = [[64, 32], [32, 16]]", [("nvjet_sm90_dddd", 25)])
        said, found = self.gemms(call, known)
        self.assertEqual(found, [("float64", 2.0 * 64 * 32 * 16)])
        self.assertIn("1 GEMMs have kernels whose names tell no type of 16, 32 or 64 bits; --dtype says it", said)
        _, found = self.gemms(call, narrow, known, flags=("--dtype", "bfloat16"))
        self.assertEqual(found, [("bfloat16", 2.0 * 64 * 32 * 48), ("float64", 2.0 * 64 * 32 * 16)])
        self.assertIn("--dtype: unknown 'int4'",
                      self.refused("import", "nsys", "g.sqlite", "--dtype", "int4", "-o", "x"))

    def test_uneven_alltoalls_and_groups(self):
        """The size of an AlltoAll is the most that a rank sends or receives; calls whose shares of a kernel nobody
        knows are left out."""
        export = Export()
        for rank, (sends, receives, us) in enumerate((([100, 50], [100, 500], 40), ([500, 20], [50, 20], 9))):
            thread = export.thread(10 + rank, rank)
            thread.nccl("ncclCommInitRankConfig", **{COMM: 5, RANKS: 2, "Rank": rank})
            thread.range("ncclGroupStart")
            for send, receive in zip(sends, receives):
                thread.nccl("ncclSend", **{COMM: 5, BYTES: send})
                thread.nccl("ncclRecv", **{COMM: 5, BYTES: receive})
            thread.range("ncclGroupEnd", [lambda: thread.kernel("ncclDevKernel_SendRecv()", us)])
            thread.range("ncclGroupStart")  # two AllReduces in one kernel
            thread.nccl("ncclAllReduce", **{COMM: 5, BYTES: 1000})
            thread.nccl("ncclAllReduce", **{COMM: 5, BYTES: 24})
            thread.range("ncclGroupEnd", [lambda: thread.kernel("ncclDevKernel_AllReduce()", 8)])
            thread.range("ncclGroupStart")  # different ones
            thread.nccl("ncclAllReduce", **{COMM: 5, BYTES: 1000})
            thread.nccl("ncclAllGather", **{COMM: 5, BYTES: 24})
            thread.range("ncclGroupEnd", [lambda: thread.kernel("ncclDevKernel_AllReduce()", 7)])
            thread.nccl("ncclSend", [("ncclDevKernel_SendRecv()", 6)], **{COMM: 5, BYTES: 64})  # of a pipeline
            thread.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 5)  # outside any call
        said, cases = self.imported(self.write("t.sqlite", export))
        self.assertEqual(sorted(cases), ["op/allreduce/intra/2/1024", "op/alltoall/intra/2/600"])
        [[seconds]] = cases["op/alltoall/intra/2/600"]["samples"]["seconds"]
        self.assertAlmostEqual(seconds, 9e-6, delta=1e-12)  # of the rank that came last
        self.assertIn("collectives of no row 1 (6.0 us)", said)
        self.assertIn("collectives without NCCL's arguments: 2 (12.0 us)", said)

    def test_pipelines_send_more_in_their_middle(self):
        export = fill(Export(), 4)
        for rank, messages in enumerate((3, 6, 6, 3)):
            thread = export.thread(4000 + rank, rank, tid=9000 + rank)
            thread.nccl("ncclCommInitRankConfig", **{COMM: 9, RANKS: 4, "Rank": rank})
            for _ in range(messages):
                for call in ("ncclSend", "ncclRecv"):
                    thread.nccl(call, [("ncclDevKernel_SendRecv()", 6)], **{COMM: 9, BYTES: 64})
        said, cases = self.imported(self.write("t.sqlite", export), flags=("--network", "intra"))
        self.assertEqual(len(cases), len(self.imported(self.write("u.sqlite", fill(Export(), 4)),
                                                       flags=("--network", "intra"))[1]))
        self.assertIn("collectives of no row 12 (72.0 us)", said)

    def test_groups_of_fewer_messages_are_of_pipelines(self):
        export = fill(Export(), 4)
        for rank in range(4):
            thread = export.thread(4000 + rank, rank, tid=9000 + rank)
            thread.nccl("ncclCommInitRankConfig", **{COMM: 9, RANKS: 4, "Rank": rank})
            thread.range("ncclGroupStart")
            for call in ("ncclSend", "ncclRecv") * 2:
                thread.nccl(call, **{COMM: 9, BYTES: 640})
            thread.range("ncclGroupEnd", [lambda: thread.kernel("ncclDevKernel_SendRecv()", 6)])
        _, cases = self.imported(self.write("t.sqlite", export), flags=("--network", "intra"))
        self.assertNotIn("op/alltoall/intra/4/1280", cases)
        self.assertEqual(len(cases), len(self.imported(self.write("u.sqlite", fill(Export(), 4)),
                                                       flags=("--network", "intra"))[1]))

    def test_a_map_says_what_kernels_do(self):
        kernels = self.path("map.csv", "kernel,kind\nflash_fwd,other\n")
        said, _ = self.imported(self.write("t.sqlite", fill(Export())), flags=("--map", kernels))
        self.assertIn("attention 0", said)

    def test_packed_exports_are_read(self):
        path = self.write("t.sqlite", fill(Export()))
        packed = self.folder / "t.sqlite.gz"
        packed.write_bytes(gzip.compress(pathlib.Path(path).read_bytes(), 1))
        self.imported(packed)
        self.assertIn("found more than 1.0 KiB", self.refused("import", "nsys", path, "--max-input", "1K", "-o", "x"))

    def test_what_is_no_export_is_refused(self):
        export = fill(Export(), 1)
        whole = pathlib.Path(self.write("whole.sqlite", export)).read_bytes()
        for name, content, said in (("cut.sqlite", whole[:len(whole) // 2], "bytes of .*, expected the whole database"),
                                    ("rep.nsys-rep", b"NSYS" * 100, "found no SQLite database"),
                                    ("empty.sqlite", b"", "found no SQLite database"),
                                    ("head.sqlite", whole[:60], "found 60 bytes of 100"),
                                    ("torn.sqlite", whole[:4096] + bytes(len(whole) - 4096),
                                     "SQLite cannot read \\(database disk image is malformed\\)")):
            path = self.folder / name
            path.write_bytes(content)
            self.assertRegex(self.refused("import", "nsys", path, "-o", "r.jsonl"), f"{name}: .*{said}")
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"):
            path = self.write(f"{table}.sqlite", export, without=[table])
            self.assertRegex(self.refused("import", "nsys", path, "-o", "r.jsonl"),
                             rf"found no table {table} \(schema version '3.22.1'\), expected one \(")
        path = self.write("old.sqlite", export, change="""ALTER TABLE NVTX_EVENTS DROP COLUMN eventType;
            UPDATE META_DATA_EXPORT SET value = '1.0.2';""")
        self.assertIn("found table NVTX_EVENTS without column eventType (schema version '1.0.2')",
                      self.refused("import", "nsys", path, "-o", "r.jsonl"))
        path = self.write("idle.sqlite", export, change="DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        self.assertIn("idle.sqlite: found no kernel", self.refused("import", "nsys", path, "-o", "r.jsonl"))
        path = self.write("view.sqlite", export, change="""ALTER TABLE NVTX_EVENTS RENAME TO x;
            CREATE VIEW NVTX_EVENTS AS SELECT * FROM x""")
        self.assertIn("found no table NVTX_EVENTS",  self.refused("import", "nsys", path, "-o", "r.jsonl"))
        path = self.write("bare.sqlite", export, change="DELETE FROM NVTX_EVENTS")
        self.assertIn("found collectives without NCCL's arguments, expected ranges of NCCL 2.19 or later",
                      self.refused("import", "nsys", path, "-o", "r.jsonl"))
        lonely = Export()
        lonely.thread(1, 0).kernel("gemm", 5)
        self.assertIn("found no collective and no GEMM with sizes, expected ranges of NCCL, or of operators",
                      self.refused("import", "nsys", self.write("lonely.sqlite", lonely), "-o", "r.jsonl"))

    def test_older_exports_lack_columns(self):
        """Without globalPid, textId, domainId and payloads GEMMs are read all the same."""
        export = Export()
        gemm(export.thread(1, 0), 64, 32, 48, 25)
        path = self.write("old.sqlite", export, without=["NVTX_PAYLOAD_SCHEMA_ENTRIES", "META_DATA_EXPORT",
                                                         "TARGET_INFO_SYSTEM_ENV"],
                          change="""ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid;
                                    ALTER TABLE NVTX_EVENTS DROP COLUMN textId;
                                    ALTER TABLE NVTX_EVENTS DROP COLUMN domainId;
                                    ALTER TABLE NVTX_EVENTS DROP COLUMN binaryData;""")
        _, cases = self.imported(path, flags=("--nodes", 1, "--ranks-per-node", 1))
        self.assertEqual(list(cases), [f"op/gemm/bfloat16/{2 * 64 * 32 * 48}"])


if __name__ == "__main__":
    main()
