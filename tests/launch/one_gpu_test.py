"""usage: one_gpu_test.py PROGRAM [BACKEND]

Processes over NCCL that share one GPU (NCCL 2.30 or later), for correctness alone: collectives, layers, stacks, models
and the end of a rank that is killed. Exit code 77 where there is no GPU. BACKEND gloo tries the same without one."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from runs import Run

PROGRAM = os.path.abspath(sys.argv[1])
BACKEND = sys.argv[2] if len(sys.argv) > 2 else "nccl"
ON_GPU = BACKEND == "nccl"
KIND = "nccl-one-gpu" if ON_GPU else BACKEND  # as records call it
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if ON_GPU else {}
LIMIT_S, TIMEOUT_S, FEW_SECONDS = 170, 20, 30
LAYER = ["--check-only", "--dtype", "float64", "--batch", "2", "--seq", "64", "--model-dim", "64", "--hidden", "64",
         "--heads", "4", "--experts", "4"]


def started(ranks, verb, *words, cluster=None, ranks_per_node=None):
    """A run of some ranks, of two nodes unless there are two alone."""
    per_node = ranks_per_node or max(1, ranks // 2)
    return Run([PROGRAM, "launch", "--ranks", str(ranks), "--", verb, "--backend", BACKEND, "--ranks-per-node",
                str(per_node), "--out", "r.jsonl", "--timeout", str(TIMEOUT_S), *words], SHARED, cluster)


class OneGpu(unittest.TestCase):
    def expect_cases(self, *run_words, **of_run):
        """The cases that a run leaves, which are all right and say on what they ran."""
        with started(*run_words, **of_run) as run:
            code = run.wait(LIMIT_S)
            self.assertEqual(code, 0, [code, run.lines, run.out])
            with open(run.path("r.jsonl")) as file:
                lines = [json.loads(line) for line in file]
        cases = [line for line in lines if line["kind"] == "case"]
        self.assertTrue(cases)
        for case in cases:
            self.assertEqual((case["status"], case["backend"]), ("ok", KIND), case)
        return lines

    def test_collectives_of_2_and_4_ranks(self):
        for ranks in (2, 4):
            lines = self.expect_cases(ranks, "microbench", "--min-bytes", "64K", "--max-bytes", "1M", "--step-factor",
                                      "4", "--repetitions", "2")
            found = {line["parameters"]["op"] for line in lines if line["kind"] == "case"}
            self.assertLessEqual({"alltoall", "allreduce", "sendrecv"} | ({"allgather", "reducescatter"} if ranks == 4
                                                                          else set()), found)

    def test_all_ranks_together(self):
        self.expect_cases(4, "microbench", "--op", "a2a-ep-esp,saa", "--min-bytes", "64K", "--max-bytes", "1M",
                          "--step-factor", "4", "--repetitions", "2")

    @unittest.skipUnless(ON_GPU, "processes over gloo have a network")
    def test_no_profile_has_their_times(self):
        words = ["microbench", "--backend", BACKEND, "--op", "alltoall", "--out", "r.jsonl", "--repetitions", "2"]
        with Run([PROGRAM, "launch", "--ranks", "2", "--", *words], SHARED) as run:
            self.assertEqual(run.wait(LIMIT_S), 0, run.lines)
            fit = subprocess.run([PROGRAM, "fit", "--records", "r.jsonl"], cwd=run.folder, capture_output=True,
                                 text=True)
            self.assertEqual(fit.returncode, 2, fit.stderr)
            self.assertIn("found only cases whose ranks shared one GPU", fit.stderr)
        with started(2, "tune") as run:
            self.assertEqual(run.wait(LIMIT_S), 2, run.lines)
            self.assertIn("found ranks that share a GPU and so use no network", "\n".join(run.lines))

    def test_layers(self):
        for ranks in (2, 4):
            self.expect_cases(ranks, "layerbench", "--cluster", "profile.toml", "--schedule",
                              "ds-moe,tutel,fsmoe,parm-s2", *LAYER, cluster=(2, ranks // 2))

    def test_layers_whose_ranks_have_unequal_rows(self):
        self.expect_cases(4, "layerbench", "--cluster", "profile.toml", "--schedule", "tutel,fsmoe",
                          "--capacity-factor", "none", *LAYER, cluster=(2, 2))

    def test_stacks(self):
        self.expect_cases(4, "layerbench", "--cluster", "profile.toml", "--layers", "2", "--schedule", "fsmoe,tutel",
                          *LAYER, cluster=(2, 2))

    def test_models(self):
        self.expect_cases(4, "modelbench", "--cluster", "profile.toml", "--model", "tiny-gpt", "--layers", "2",
                          "--schedule", "fsmoe,tutel", "--dtype", "float64", "--check-only", cluster=(2, 2))

    def test_a_killed_rank_ends_the_others(self):
        layer = [word for word in LAYER if word != "--check-only"]
        with started(4, "layerbench", "--cluster", "profile.toml", "--schedule", "fsmoe", "--degree-forward", "2",
                     "--degree-backward", "2", "--iterations", "1000000", *layer, cluster=(2, 2)) as run:
            pid = run.wait_for_rank(1, joined=True)
            time.sleep(3)
            os.kill(pid, signal.SIGKILL)
            code = run.wait(TIMEOUT_S + FEW_SECONDS)
            self.assertEqual(code, 4, run.lines)
            self.assertIn("moetune: rank 1 was ended by signal 9 (Killed)", run.lines)
            for line in run.lines:
                self.assertRegex(line, r"\brank 1\b")
            self.assertEqual(run.left_behind(), [])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    with started(1, "microbench", "--op", "gemm", "--repetitions", "1") as alone:
        if alone.wait(LIMIT_S) == 77:
            print(*alone.lines, sep="\n")
            sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
