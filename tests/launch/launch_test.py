"""usage: launch_test.py PROGRAM

`launch` as a user meets it: exit codes, one line however many processes run, one document, records of all ranks."""
import json
import os
import sys
import tempfile
import tomllib
import unittest

from runs import Run

PROGRAM = os.path.abspath(sys.argv[1])
LAYER = {"--cluster": "profile.toml", "--ranks-per-node": "2", "--dtype": "float64", "--batch": "2", "--seq": "32",
         "--model-dim": "32", "--hidden": "64", "--heads": "4", "--experts": "4", "--schedule": "tutel"}

GRID = """schema = 1
name = "small"
source = "made for a test"
cluster = "gloo"
capacity_rounding = "ragged"
[layers]
batch = 1
heads = 2
seq = 32
model_dim = 32
hidden_scale = 2
capacity_factor = 1.2
ffn = "gpt"
top_k = 1
experts = "nodes"
"""


def layerbench(changed=(), *words):
    return ["layerbench", *(word for pair in (LAYER | dict(changed)).items() for word in pair), *words]


# By launch itself, before a process starts; then by every process.
REFUSED = [
    ([], "found no command, expected -- VERB"),
    (["--"], "found no command, expected -- VERB"),
    (["--", "simulate"], "found 'simulate', expected one of: tune, microbench, layerbench, modelbench"),
    (["--ranks", "0", "--", "layerbench"], "--ranks: found '0'"),
    (["--rank", "2", "--", "layerbench"], "--rank"),
    (["--", "layerbench", "--batch", "x"], "--batch: found 'x'"),
    (["--", "layerbench", "--no-such-flag"], "--no-such-flag"),
    (["--", "layerbench", "--backend", "local"], "--backend: found local"),
    (["--", "layerbench", "--rank", "1", "--ranks", "2"], "found --rank or --ranks after --"),
    (["--ranks", "3", "--", "layerbench", "--ranks-per-node", "2"], "--ranks-per-node: found 2, expected a divisor"),
]
REFUSED_BY_RANKS = [
    (layerbench({"--heads": "3"}), "heads = 3 does not divide model-dim = 32"),
    (layerbench({"--cluster": "testbed-b"}),
     "found testbed-b with 8 nodes x 4 ranks, expected 2 x 2, as the processes have"),
    (layerbench({"--schedule": "nope"}), "--schedule: unknown 'nope'"),
    (["tune", "--grid", "nope"], "grid: found 'nope'"),
    (layerbench({"--rendezvous": "nope"}), "--rendezvous: found 'nope', expected HOST:PORT"),
    (layerbench({"--gate": "softmoe", "--aux-loss": "0.1"}), "gate softmoe: has no load-balancing loss"),
    (["tune", "--shape", "auto", "--batch", "2", "--ranks-per-node", "2", "--cluster", "profile.toml"],
     "--shape: found ranks that are processes"),
]


class Launch(unittest.TestCase):
    def run_program(self, *words, cluster=(2, 2)):
        """Runs the program: exit code, stdout, stderr."""
        run = Run([PROGRAM, *words], cluster=cluster)
        self.addCleanup(run.__exit__)
        code = run.wait(600)  # of one that hangs: under sanitizers a run takes minutes
        self.assertEqual(run.left_behind(), [])
        return run, code

    def test_refused_in_one_line(self):
        for words, expected in REFUSED + [(["--ranks", "4", "--", *words], text) for words, text in REFUSED_BY_RANKS]:
            with self.subTest(" ".join(words)):
                run, code = self.run_program("launch", *words)
                self.assertEqual((code, run.out, len(run.lines)), (2, "", 1), run.lines)
                self.assertIn(expected, run.lines[0])

    def test_rank_0_alone_finds_it(self):
        run, code = self.run_program("launch", "--ranks", "4", "--",
                                     *layerbench({"--out": "/proc/no/records.jsonl"}, "--check-only"))
        self.assertEqual((code, run.out), (2, ""), run.lines)
        for line in run.lines:
            self.assertIn("/proc/no/records.jsonl: cannot be opened", line)

    def test_help(self):
        for words, expected in ((["--help"], "Usage: moetune launch"),
                                (["--ranks", "4", "--", "layerbench", "--help"], "Usage: moetune layerbench")):
            run, code = self.run_program("launch", *words)
            self.assertEqual((code, run.lines), (0, []))
            self.assertEqual(run.out.count("Usage: "), 1)
            self.assertIn(expected, run.out)

    def test_rank_0_alone_prints_and_writes(self):
        run, code = self.run_program("launch", "--ranks", "4", "--",
                                     *layerbench({"--schedule": "fsmoe,tutel"}),
                                     "--iterations", "3", "--json", "--out", "records.jsonl")
        self.assertEqual((code, run.lines), (0, []))
        schedules = json.loads(run.out)["schedules"]
        self.assertEqual([row["status"] for row in schedules], ["ok", "ok"])
        self.assertEqual(sorted(os.listdir(run.folder)), ["err", "out", "profile.toml", "records.jsonl", "runtime"])
        with open(run.path("records.jsonl")) as file:
            header, *cases, end = [json.loads(line) for line in file]
        self.assertEqual(header["ranks"], {"backend": "gloo", "device": "cpu", "ranks": 4, "nodes": 2,
                                           "ranks_per_node": 2, "interface": "lo",
                                           "threads": 1})
        self.assertEqual((len(cases), end["kind"]), (2, "end"))
        for case in cases:
            self.assertEqual((case["backend"], case["emulated"], case["status"]), ("gloo", False, "ok"))
            for samples in case["samples"].values():
                self.assertEqual([len(ranks) for ranks in samples], [4, 4, 4])
                self.assertGreater(min(min(ranks) for ranks in samples), 0)

    def test_blocks_go_round_a_ring(self):
        for ranks in ("2", "4"):
            run, code = self.run_program("launch", "--ranks", "4", "--", *layerbench(
                {"--mp": "1", "--cp": ranks, "--cp-exchange": "ring", "--schedule": "tutel,fsmoe"},
                "--nearest", "--check-only", "--json"))
            with self.subTest(ranks=ranks):
                self.assertEqual((code, run.lines), (0, []))
                for row in json.loads(run.out)["schedules"]:
                    self.assertEqual(row["status"], "ok")
                    self.assertLess(row["measured"]["worst_error"], 1e-10)

    def test_a_layer_that_cannot_run_leaves_the_others(self):
        """All ranks refuse it, and go on with the rest of the grid."""
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as grid:
            grid.write(GRID.replace("capacity_factor = 1.2", 'capacity_factor = ["*", 1.2]'))
            grid.flush()
            run, code = self.run_program("launch", "--ranks", "2", "--", "layerbench", "--grid", grid.name, "--gate",
                                         "softmoe", "--schedule", "tutel", "--check-only", "--json", cluster=(1, 2))
        self.assertEqual(code, 0, run.lines)
        rows = [row for layer in json.loads(run.out)["layers"] for row in layer["schedules"]]
        self.assertEqual([row["status"] for row in rows], ["unsupported", "ok"])
        self.assertIn("capacity-factor none", rows[0]["reason"])

    def test_text_once(self):
        run, code = self.run_program("launch", "--ranks", "2", "--",
                                     *layerbench({"--ranks-per-node": "1"}, "--check-only"), cluster=(2, 1))
        self.assertEqual((code, run.lines), (0, []))
        self.assertEqual(run.out.count("largest error against the reference"), 1, run.out)
        self.assertEqual(os.listdir(run.path("results")), ["layerbench-made-2x1.jsonl"])

    def test_the_answer_for_a_model(self):
        run, code = self.run_program("launch", "--ranks", "2", "--", "tune", "--model", "tiny-gpt", "--layers", "1",
                                     "--schedule", "tutel,ds-moe,fsmoe", "--current", "tutel:2", "--json")
        self.assertEqual(code, 0, run.lines)
        answer = json.loads(run.out)
        self.assertEqual((answer["model"], answer["emulated"], answer["trial_layers"]), ("tiny-gpt", False, 1))
        self.assertEqual(sorted(row["schedule"] for row in answer["ranking"]), ["ds-moe", "fsmoe", "tutel"])
        ran = {(trial["schedule"], trial["current"]): trial for trial in answer["trials"]}
        self.assertEqual(set(trial["status"] for trial in ran.values()), {"ok"})
        self.assertIn(("tutel", True), ran)
        use = ran[answer["use"]["schedule"], False]
        for (_, current), trial in ran.items():
            if not current and trial["measured_s"] < 0.9 * use["measured_s"]:  # ends are priced alone, runs differ
                self.assertAlmostEqual(trial["predicted_s"] / use["predicted_s"], 1, 6)  # one plan, and noise
        self.assertEqual(sorted(os.listdir(run.path("results"))),
                         [f"tune-gloo-1x2.{ending}" for ending in ("jsonl", "toml", "trace.json")])

    def test_tune_on_one_node(self):
        """Experts are spread over its ranks, so AlltoAll is what its network carries."""
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as grid:
            grid.write(GRID)
            grid.flush()
            run, code = self.run_program("launch", "--ranks", "2", "--", "tune", "--grid", grid.name, "--schedule",
                                         "tutel,lina", "--json")
        self.assertEqual(code, 0, run.lines)
        verified = json.loads(run.out)["verified"]
        self.assertEqual([(row["schedule"], row["status"]) for row in verified], [("tutel", "ok"), ("lina", "ok")])
        for row in verified:
            self.assertGreater(min(row["predicted_s"], row["measured_s"]), 0)
        with open(run.path("results/tune-gloo-1x2.toml"), "rb") as file:
            measured = {(row["op"], row["network"], row["ranks"]) for row in tomllib.load(file)["comm"]}
        self.assertLessEqual({("alltoall", "intra", 2), ("allreduce", "intra", 2)}, measured)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
