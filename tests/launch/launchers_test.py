"""usage: launchers_test.py PROGRAM STORE_SERVER Mpirun | Torchrun | Variables

Ranks that others start: mpirun and torchrun (on PATH, or $TORCHRUN) themselves, and the variables of torchrun and
srun."""
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from runs import Run, free_port

PROGRAM, STORE_SERVER = map(os.path.abspath, sys.argv[1:3])
SKIPPED = 77
MPIRUN = shutil.which("mpirun")
TORCHRUN = shutil.which(os.environ.get("TORCHRUN", "torchrun"))
LAYERBENCH = [PROGRAM, "layerbench", "--backend", "gloo", "--cluster", "profile.toml", "--ranks-per-node", "2",
              "--dtype", "float64", "--batch", "2", "--seq", "32", "--model-dim", "32", "--hidden", "64", "--heads",
              "4", "--experts", "4", "--schedule", "fsmoe", "--check-only", "--json", "--out", "records.jsonl"]
WRONG = ["3" if before == "--heads" else word for before, word in zip([""] + LAYERBENCH, LAYERBENCH)]
TIMED = [word for word in LAYERBENCH if word != "--check-only"] + ["--iterations"]  # and how many
# Ranks 0 to 3 as `$1=rank` beside what the environment already says; the code of one that fails.
EACH_RANK = """
name=$1 code=0
shift
for rank in 0 1 2 3; do
  env "$name=$rank" "$@" &
  started="$started $!"
done
for process in $started; do wait "$process" || code=$?; done
exit $code
"""


class Launcher(unittest.TestCase):
    def check(self, command, variables, said):
        """Checks 4 ranks on two nodes: the layer is proven; rank 0 prints `said` of who started it."""
        with Run(command, variables, (2, 2)) as run:
            self.check_end(run, said)

    def check_end(self, run, said, lives=1):
        code = run.wait(120)
        with open(run.path("err")) as err:
            lines = err.read()
        self.assertEqual(code, 0, lines)
        self.assertIn(said, lines)
        # A life may end before rank 0 has said this.
        heard = lines.count("gloo: 4 ranks, 2 nodes x 2 (by --ranks-per-node), over lo")
        self.assertIn(heard, range(1, lives + 1), lines)
        self.assertEqual(run.left_behind(), [])
        row, = json.loads(run.out)["schedules"]
        self.assertEqual(row["status"], "ok")
        self.assertLess(row["measured"]["worst_error"], 1e-10)


class Mpirun(Launcher):
    """Ranks are told no address: they find each other by loopback and the port file."""

    def test_mpirun(self):
        self.check([MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "4", *LAYERBENCH], {},
                   "by Open MPI's variables (OMPI_COMM_WORLD_RANK), store on this host, port in ")

    def test_a_rank_that_fails_ends_mpirun(self):
        with Run([MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "4", *WRONG], {}, (2, 2)) as run:
            self.assertEqual(run.wait(120), 2, run.lines)
            self.assertEqual(len([line for line in run.lines if "heads = 3 does not divide" in line]), 1, run.lines)
            self.assertEqual(run.left_behind(), [])


class Torchrun(Launcher):
    """Its agents serve the store, and end the others as soon as one rank failed; torchrun's code is then always 1."""
    SAID = "rank 0 of 4 by torchrun's variables (RANK), the launcher's store "
    ALONE = [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", "4"]
    QUIET = {"OMP_NUM_THREADS": "1"}  # else it says at length that it sets this

    def test_torchrun(self):
        self.check([*self.ALONE, *LAYERBENCH], self.QUIET, self.SAID)

    def two_agents(self, *words):
        agent = [TORCHRUN, "--no-python", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-id", "a-job",
                 "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:" + free_port()]
        both = '"$@" & "$@"; code=$?; wait $! && exit $code'
        self.check(["sh", "-c", both, "agents", *agent, *words, *LAYERBENCH], self.QUIET, self.SAID)

    def test_two_agents(self):
        self.two_agents()

    def test_two_agents_restart_after_a_rank_that_never_came(self):
        """Only the agent of that rank counts a restart; the other's ranks are still waiting for it."""
        once = 'if [ "$RANK" = 3 ] && mkdir failed; then sleep 2; exit 1; fi; exec "$@"'
        self.two_agents("--max-restarts", "1", "sh", "-c", once, "rank")

    def test_a_job_restarts_when_a_rank_is_killed(self):
        with Run([*self.ALONE, "--max-restarts", "1", *TIMED, "200"], self.QUIET, (2, 2)) as run:
            os.kill(run.wait_for_rank(2, joined=True), signal.SIGKILL)
            self.check_end(run, self.SAID, lives=2)

    def test_bad_input_is_said_once(self):
        with Run([*self.ALONE, *WRONG], self.QUIET, (2, 2)) as run:
            self.assertEqual((run.wait(120), run.out), (1, ""), run.lines)
            self.assertEqual(len([line for line in run.lines if "heads = 3 does not divide" in line]), 1, run.lines)
            self.assertEqual(run.left_behind(), [])

    def test_an_interrupt_ends_all(self):
        with Run([*self.ALONE, *TIMED, "1000000"], self.QUIET, (2, 2)) as run:
            run.wait_for_rank(0, joined=True)
            run.process.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(60), 1, run.lines)
            self.assertEqual(run.left_behind(), [])


class Variables(Launcher):
    def each_rank(self, name, variables, said):
        self.check(["sh", "-c", EACH_RANK, "ranks", name, *LAYERBENCH], variables, said)

    def test_torchrun_without_an_agents_store(self):
        port = free_port()
        self.each_rank("RANK", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost",
                                "MASTER_PORT": port}, f"by torchrun's variables (RANK), store localhost:{port}")

    def test_torchrun_with_an_agents_store(self):
        """A job that torchrun restarts meets in the store in which it met before."""
        server = subprocess.Popen([STORE_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = server.stdout.readline().strip()
        try:
            for restart in ("0", "1"):
                self.each_rank("RANK", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1",
                                        "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True",
                                        "TORCHELASTIC_RUN_ID": "a-job", "TORCHELASTIC_RESTART_COUNT": restart},
                               f"by torchrun's variables (RANK), the launcher's store 127.0.0.1:{port}")
        finally:
            server.communicate("")
        self.assertEqual(server.returncode, 0)

    def test_srun(self):
        self.each_rank("SLURM_PROCID", {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "71",
                                        "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "2"},
                       "by Slurm's variables (SLURM_PROCID), store on this host, port in ")

    def test_half_an_environment(self):
        with Run(LAYERBENCH, {"RANK": "0"}, (2, 2)) as run:
            self.assertEqual((run.wait(60), run.out, len(run.lines)), (2, "", 1))
            self.assertIn("RANK: found '0', but WORLD_SIZE is not set", run.lines[0])


if __name__ == "__main__":
    for name, found, by in (("Mpirun", MPIRUN, "apt-get install openmpi-bin"), ("Torchrun", TORCHRUN, "of PyTorch")):
        if sys.argv[3].startswith(name) and not found:
            print(f"skipped: needs {name.lower()} ({by})")
            sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
