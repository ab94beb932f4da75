"""Runs of several processes, as a user starts them: a marker in their environment finds all processes of one."""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

# What starts us may have told us to ignore it, and so those that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)

MARKER = "MOETUNE_TEST_RUN"
OWN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "MV2_", "SLURM_", "GLOO_")


def free_port():
    """A port of the loopback that nothing listens on now, as text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def write_profile(path, nodes, ranks_per_node, dtype="float64"):
    """A made-up cluster, so that a run needs no measuring first."""
    with open(path, "w") as file:
        file.write(f'schema = 1\nname = "made-{nodes}x{ranks_per_node}"\nsource = "made for a test"\n[topology]\n'
                   f"nodes = {nodes}\nranks_per_node = {ranks_per_node}\n")
        for network, ranks in (("inter", nodes), ("intra", ranks_per_node)):
            for op in ("alltoall", "allgather", "reducescatter", "allreduce") if ranks > 1 else ():
                file.write(f'[[comm]]\nop = "{op}"\nnetwork = "{network}"\nranks = {ranks}\n'
                           "alpha_s = 1e-4\nbeta_s_per_byte = 1e-9\n")
        file.write(f'[[compute]]\nop = "gemm"\ndtype = "{dtype}"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-10\n')


def text_of(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:  # of a process that has just ended
        return ""


def listening():
    """The sockets on this machine that listen, by inode."""
    rows = "".join(text_of(table) for table in ("/proc/net/tcp", "/proc/net/tcp6")).splitlines()
    return {row.split()[9] for row in rows if " 0A " in row}


class Run:
    """A command in a scratch folder, a session and, for port files, a runtime folder of its own. `cluster`: nodes and
    ranks a node of a profile.toml that it finds there."""

    def __init__(self, command, environment=None, cluster=None):
        self.folder = tempfile.mkdtemp(prefix="moetune-launch-")
        self.runtime = os.path.join(self.folder, "runtime")
        os.mkdir(self.runtime, 0o700)
        if cluster:
            write_profile(self.path("profile.toml"), *cluster)
        self.mark = uuid.uuid4().hex
        self.sockets = set()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
        clean |= {MARKER: self.mark, "XDG_RUNTIME_DIR": self.runtime} | (environment or {})
        self.started_s = time.monotonic()
        with open(self.path("out"), "w") as out, open(self.path("err"), "w") as err:
            self.process = subprocess.Popen(command, cwd=self.folder, env=clean, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def wait(self, limit_s):
        """The exit code; None if it still runs after so long."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    @property
    def out(self):
        return text_of(self.path("out"))

    @property
    def lines(self):
        """What the ranks and launch said, without what rank 0 says of a run that starts."""
        said = [line for line in text_of(self.path("err")).splitlines() if line]
        return [line for line in said if ", store " not in line and not re.match(r"moetune( rank 0)?: gloo: ", line)]

    def members(self):
        """Living processes of the run (zombies have no variables), by pid, and their variables."""
        found = {}
        for folder in glob.glob("/proc/[0-9]*"):
            variables = text_of(folder + "/environ").split("\0")
            if f"{MARKER}={self.mark}" in variables:
                found[int(folder[6:])] = dict(each.partition("=")[::2] for each in variables if each)
        return found

    def rank(self, rank):
        """The process of a rank once it is moetune-run; none so far."""
        for pid, variables in self.members().items():
            if variables.get("RANK") == str(rank) and text_of(f"/proc/{pid}/comm").startswith("moetune-run"):
                return pid
        return None

    def wait_for_rank(self, rank, joined, limit_s=120):
        """A rank's pid once it runs, or once it knows of all the others."""
        while time.monotonic() < self.started_s + limit_s and self.process.poll() is None:
            pid = self.rank(rank)
            names = [text_of(path).strip() for path in glob.glob(f"/proc/{pid}/task/*/comm")] if pid else []
            if pid and (not joined or "detector" in names):
                self.note_sockets()
                return pid
            time.sleep(0.01)
        raise AssertionError(f"rank {rank} never ran: {self.lines}")

    def note_sockets(self):
        for pid in self.members():
            for file in glob.glob(f"/proc/{pid}/fd/*"):
                try:
                    self.sockets.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
                except OSError:
                    pass
        self.sockets &= listening()

    def left_behind(self):
        """What outlives the run: processes, sockets that listen, port files. Those that are dying get a while."""
        deadline = time.monotonic() + 3
        while True:
            left = [*self.members(), *(self.sockets & listening()), *os.listdir(self.runtime)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)
