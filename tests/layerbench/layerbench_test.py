"""usage: layerbench_test.py PROGRAM

The verb `layerbench`: one layer, a grid's sample, layers and schedules that can't be run."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
TESTBED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/clusters/testbed-b.toml")
LAYER = ["--seq", "256", "--model-dim", "1024", "--batch", "1"]


class Layerbench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True)

    def layerbench(self, *arguments):
        found = self.run_program("layerbench", "--out", "r.jsonl", *arguments)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return found.stdout

    def write_grid(self, heads, dtype="float32"):
        with open(os.path.join(self.folder, "g.toml"), "w") as file:
            file.write('schema = 1\nname = "g"\nsource = "a test"\ncluster = "testbed-b"\n'
                       'capacity_rounding = "ragged"\n[layers]\nbatch = 1\nseq = 256\nmodel_dim = 512\n'
                       f'hidden_scale = 2\nheads = {heads}\ncapacity_factor = 1.2\nffn = "gpt"\ntop_k = 1\n'
                       f'experts = "nodes"\ndtype = "{dtype}"\n')

    def records(self):
        with open(os.path.join(self.folder, "r.jsonl")) as file:
            return [json.loads(line) for line in file]

    def test_a_layer(self):
        printed = json.loads(self.layerbench(*LAYER, "--schedule", "tutel,fsmoe", "--iterations", "2", "--json"))
        self.assertEqual([row["schedule"] for row in printed["schedules"]], ["tutel", "fsmoe"])
        cases = {line["schedule"]: line for line in self.records() if line["kind"] == "case"}
        for row in printed["schedules"]:
            measured, predicted = row["measured"], row["predicted"]
            self.assertEqual(measured, cases[row["schedule"]]["summary"])
            self.assertEqual(measured["tensors_made"], 0)
            self.assertLess(measured["worst_error"], 2e-5)
            for name in ("exposed_s", "overlap_efficiency", "peak_bytes", "total_s"):
                self.assertGreaterEqual(measured[name], 0)
                self.assertGreaterEqual(predicted[name], 0)
            self.assertLessEqual(measured["exposed_s"], measured["total_s"])
            for name in ("drop_rate", "padding", "overlap_efficiency"):
                self.assertLessEqual(measured[name], 1)
            self.assertGreaterEqual(measured["imbalance"], 1)
            spent = sum(task["predicted_s"] for task in row["tasks"])
            self.assertGreater(spent, 0)
            kinds = {(task["phase"], task["kind"]) for task in row["tasks"]}
            self.assertIn(("backward", "combine"), kinds)
            for phase, kind in kinds:
                ratio = f"ratio_{phase}_{kind}"
                task = next(t for t in row["tasks"] if (t["phase"], t["kind"]) == (phase, kind))
                self.assertEqual(measured.get(ratio, 0), task["median_ratio"])

    def test_the_text_is_narrow(self):
        text = self.layerbench(*LAYER, "--schedule", "all", "--iterations", "1", "--tasks")
        for line in text.splitlines():
            self.assertTrue(len(line) <= 120 or ": " in line, line)  # reasons may be longer
        for words in ("exposed comm ms", "overlap", "dropped", "empty", "estimate", "Tasks of fsmoe"):
            self.assertIn(words, text)

    def test_drawn_layers_and_what_following_predictions_costs(self):
        drawn = ["--grid", "fsmoe-30-b", "--drawn", "3", "--seed", "5", "--model-dim", "512", "--seq", "128"]
        printed = json.loads(self.layerbench(*drawn, "--schedule", "ds-moe,tutel,fsmoe", "--iterations", "4", "--json"))
        self.assertEqual(len(printed["layers"]), 3)
        layers = {}
        for line in self.records():
            if line["kind"] == "case" and line["status"] == "ok" and "total_s" in line["summary"]:
                passes = [max(ranks) for ranks in line["samples"]["total_s"]]
                halves = [statistics.median(passes[half::2]) for half in (0, 1)]
                layers.setdefault(line["parameters"]["layer"], []).append((line["prediction"]["total_s"], halves))
        self.assertTrue(all(name.startswith("drawn-") for name in layers), layers.keys())
        regrets = []
        for runs in layers.values():
            if len(runs) < 2:
                continue  # the others did not run well
            chosen = min(runs)[1]
            both = [chosen[1 - half] / min((r[1] for r in runs), key=lambda h: h[half])[1 - half] - 1
                    for half in (0, 1)]
            regrets.append(sum(both) / 2)
        self.assertEqual(printed["regret"]["layers"], len(regrets))
        self.assertAlmostEqual(printed["regret"]["mean"], sum(regrets) / len(regrets), delta=1e-9)
        self.assertAlmostEqual(printed["regret"]["worst"], max(regrets), delta=1e-9)
        refused = self.run_program("layerbench", *drawn, "--only", "x")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--only", refused.stderr)

    def slices_of(self, name):
        """The slices of each process of a trace, by its name."""
        with open(os.path.join(self.folder, name)) as file:
            events = json.load(file)["traceEvents"]
        processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        found = {process: [] for process in processes.values()}
        for event in events:
            if event["ph"] == "X":
                found[processes[event["pid"]]].append(event)
        return found

    def test_a_trace_has_every_rank_and_what_each_task_was_to_take(self):
        self.layerbench(*LAYER, "--schedule", "tutel,fsmoe", "--degree-forward", "2", "--degree-backward", "2",
                        "--iterations", "3", "--trace", "t.json")
        found = self.slices_of("t.json")
        cases = {line["schedule"]: line for line in self.records() if line["kind"] == "case"}
        self.assertEqual(sorted(found), sorted(
            f"{schedule} r_f 2 r_b 2 {what}" for schedule in ("tutel", "fsmoe")
            for what in ["simulated"] + [f"measured, rank {rank}" for rank in range(4)]))
        for process, slices in found.items():
            schedule = process.split()[0]
            timeline = cases[schedule]["measured_timeline"]
            rows = [dict(zip(timeline["columns"], row)) for row in timeline["rows"]]
            slices.sort(key=lambda event: event["args"]["task"])
            self.assertEqual(len(slices), len(rows))
            self.assertTrue(any(event["args"]["critical"] for event in slices), process)
            begin = min(event["ts"] for event in slices) - min(row["start_s"] for row in rows) * 1e6
            critical = [event for event in slices if event["args"]["critical"]]
            self.assertLess(max(event["args"]["slack_us"] for event in critical), 0.002, process)
            for event, row in zip(slices, rows):
                self.check_slice(event, row, measured="measured" in process)
                if process.endswith(f"measured, rank {timeline['rank']}"):  # the record's own pass
                    self.assertAlmostEqual(event["dur"], (row["end_s"] - row["start_s"]) * 1e6, delta=0.003)
                    self.assertAlmostEqual(event["ts"] - begin, row["start_s"] * 1e6, delta=0.003)
        measured = [[event["ts"] for event in slices] for process, slices in found.items() if "measured" in process]
        self.assertEqual(len({tuple(starts) for starts in measured}), 8, "each rank has times of its own")

    def check_slice(self, event, row, measured):
        args = event["args"]
        self.assertEqual((args["phase"], args["chunk"], args["chunks"]), (row["phase"], row["chunk"], row["chunks"]))
        kind = row["kind"] + (f" {row['chunk'] + 1}" if row["chunks"] > 1 else "")  # not 1/2: colours go by names
        self.assertRegex(event["name"], f"^{kind}( slice [0-9]+)?$")
        self.assertIsInstance(args["critical"], bool)
        self.assertGreaterEqual(args["slack_us"], 0)
        self.assertEqual("predicted_us" in args, measured)
        if measured:
            took = (row["predicted_end_s"] - row["predicted_start_s"]) * 1e6
            self.assertAlmostEqual(args["predicted_us"], took, delta=0.003)
        if row["kind"] in ("dispatch", "combine"):
            self.assertGreater(args["bytes"], 0)
            self.assertAlmostEqual(args["GB/s"] / (args["bytes"] / event["dur"] / 1e3), 1, delta=2e-3)

    def test_a_grid(self):
        self.layerbench("--grid", "fsmoe-30-b", "--grid-layers", "3", "--check-only", "--schedule", "tutel,fsmoe")
        lines = self.records()
        layers = [line["parameters"]["layer"] for line in lines if line["kind"] == "case"]
        self.assertEqual(len(layers), 6)
        self.assertEqual(len(set(layers)), 3)
        flagged = json.loads(self.layerbench("--grid", "fsmoe-30-b", "--grid-layers", "2", "--check-only", "--gate",
                                             "switch", "--schedule", "tutel", "--json", "--overwrite"))
        self.assertEqual(flagged["summary"][0]["ok"], 2)
        self.assertEqual(len(flagged["layers"]), 2)

    def test_what_cannot_run_is_a_row(self):
        """12 heads don't divide a model dim of 512."""
        self.write_grid(heads=[8, 12])
        printed = json.loads(self.layerbench("--grid", "g.toml", "--check-only", "--schedule", "tutel", "--json"))
        states = {layer["layer"]: layer["schedules"][0] for layer in printed["layers"]}
        self.assertEqual(sorted(row["status"] for row in states.values()), ["ok", "unsupported"])
        refused = next(row for row in states.values() if row["status"] == "unsupported")
        self.assertIn("heads", refused["reason"])

    def test_where_no_schedule_can_run_it_is_bad_input(self):
        found = self.run_program("layerbench", *LAYER, "--gate", "softmoe", "--capacity-factor", "none", "--check-only",
                                 "--schedule", "tutel,fsmoe", "--out", "r.jsonl")
        self.assertEqual(found.returncode, 2, found.stderr)
        self.assertIn("capacity-factor none", found.stderr)
        self.assertEqual(found.stderr.count("\n"), 1, found.stderr)

    def test_a_mistake_leaves_the_records_as_they_were(self):
        words = ["layerbench", *LAYER, "--schedule", "tutel", "--check-only", "--out", "r.jsonl"]
        self.assertEqual(self.run_program(*words).returncode, 0)
        with open(os.path.join(self.folder, "r.jsonl")) as file:
            before = file.read()
        for more in ([], ["--overwrite"]):
            found = self.run_program(*words, "--workload", "hot:99", *more)
            self.assertEqual(found.returncode, 2, found.stderr)
            with open(os.path.join(self.folder, "r.jsonl")) as file:
                self.assertEqual(file.read(), before)

    def test_a_check_needs_no_price(self):
        """No measurement, no row for float64, none for groups of 4 nodes; dumped too."""
        for cluster in ("host", "testbed-b"):
            with self.subTest(cluster):
                printed = json.loads(self.layerbench(
                    "--cluster", cluster, "--check-only", "--dump", "dump", "--dtype", "float64", "--batch", "1",
                    "--seq", "64", "--model-dim", "64", "--schedule", "fsmoe,tutel,lina", "--overwrite", "--json"))
                for row in printed["schedules"]:
                    self.assertEqual(row["status"], "ok", row)
                    self.assertLess(row["measured"]["worst_error"], 1e-9)
                    self.assertEqual(row["measured"]["planned_by"], "nominal")
                    self.assertNotIn("total_s", row["predicted"])
                    self.assertTrue(os.path.exists(os.path.join(self.folder, "dump", row["schedule"],
                                                                "manifest.json")))
                measured = [line["key"] for line in self.records() if line["kind"] == "case"
                            and not line["key"].startswith("run/")]
                self.assertEqual(measured, [])
        printed = json.loads(self.layerbench("--check-only", "--recompute", "selective", "--experts", "4", "--ep", "4",
                                             "--schedule", "tutel", *LAYER, "--overwrite", "--json"))
        self.assertEqual(printed["schedules"][0]["status"], "ok", printed)

    def test_without_a_gpu_no_file_is_left(self):
        for verb in (["layerbench", *LAYER, "--schedule", "fsmoe"], ["microbench"], ["modelbench"]):
            found = subprocess.run([PROGRAM, *verb, "--device", "cuda", "--out", "r.jsonl"], cwd=self.folder, text=True,
                                   capture_output=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual(found.returncode, 77, found.stderr)
            self.assertEqual(found.stderr.count("\n"), 1, found.stderr)
            self.assertEqual(os.listdir(self.folder), [])

    def test_a_profile_with_unusable_rows(self):
        """What needs none of them goes on, what is predicted by a weak row says so."""
        with open(TESTBED) as file:
            profile = file.read()
        begin = profile.index("[[comm]]")
        rows = ["[[comm]]" + row for row in profile[begin:].split("[[comm]]")[1:]]
        kept = [row for row in rows if 'op = "reducescatter"' not in row]
        self.assertEqual(len(kept), len(rows) - 1)
        kept[0] = kept[0].replace("[[comm]]", '[[comm]]\nweak = "held-out error 30 %"', 1)
        with open(os.path.join(self.folder, "odd.toml"), "w") as file:
            file.write(profile[:begin] + "".join(kept) +
                       '\n[[unusable]]\nrow = "reducescatter intra 4"\nreason = "found times that shrink"\n')
        found = self.run_program("layerbench", "--out", "r.jsonl", "--cluster", "./odd.toml", *LAYER, "--schedule",
                                 "tutel,monta-o1", "--iterations", "1", "--json")
        printed = json.loads(found.stdout)
        self.assertEqual(found.returncode, 2 if "unsupported" in [row["status"] for row in printed["schedules"][1:]]
                         else 0, found.stderr)
        rows = {row["schedule"]: row for row in printed["schedules"]}
        self.assertEqual(rows["tutel"]["status"], "unsupported")
        self.assertIn("measured, but found times that shrink", rows["tutel"]["reason"])
        self.assertIn(rows["monta-o1"]["status"], ("ok", "invalid", "unsupported"))

    def test_16_bits_on_a_cpu(self):
        """Refused before anything is measured; of an emulated cluster run by a proxy of 32."""
        words = ("layerbench", "--cluster", "host", "--dtype", "bfloat16")
        found = self.run_program(*words)
        self.assertEqual((found.returncode, found.stdout), (2, ""))
        self.assertIn("dtype bfloat16 needs a GPU", found.stderr)
        self.write_grid(heads=8, dtype="float16")
        found = self.run_program(*words[:3], "--grid", "g.toml", "--check-only")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("dtype float16 needs a GPU", found.stdout)
        found = self.run_program("tune", "--cluster", "host", "--grid", "./g.toml")
        self.assertEqual((found.returncode, found.stdout), (2, ""))
        self.assertIn("grid g: layers of float16 only run on GPUs", found.stderr)
        with open(TESTBED) as file:
            profile = file.read().replace('dtype = "float32"', 'dtype = "float16"')
        with open(os.path.join(self.folder, "half.toml"), "w") as file:
            file.write(profile)
        self.layerbench("--cluster", "./half.toml", "--dtype", "float16", *LAYER, "--schedule", "fsmoe", "--iterations",
                        "1")
        case = next(line for line in self.records() if line["kind"] == "case")
        self.assertIn(case["status"], ("ok", "invalid"))  # by what else the machine does
        found = self.run_program("microbench", "--cluster", "./half.toml", "--repetitions", "1", "-b", "64K")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("gemm/float16", found.stdout)

    def broken_off(self, words):
        """What a run leaves that is killed before its last two lines."""
        found = self.run_program(*words)
        self.assertEqual(found.returncode, 0, found.stderr)
        path = os.path.join(self.folder, "r.jsonl")
        with open(path) as file:
            kept = "".join(file.readlines()[:-2])
        with open(path, "w") as file:
            file.write(kept)
        return kept

    def text(self):
        with open(os.path.join(self.folder, "r.jsonl")) as file:
            return file.read()

    def expect_refused(self, before, words):
        found = self.run_program(*words)
        self.assertEqual((found.returncode, found.stdout), (2, ""), words)
        self.assertIn("r.jsonl: found a run that was interrupted", found.stderr)
        self.assertEqual(len(found.stderr.splitlines()), 1)
        self.assertEqual(self.text(), before, words)

    def expect_resumed(self, before, words):
        found = self.run_program(*words)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertTrue(self.text().startswith(before))
        kinds = [line["kind"] for line in self.records()]
        self.assertEqual((kinds.count("run"), kinds.count("resume"), kinds[-1]), (1, 1, "end"))

    def test_a_file_answers_one_question(self):
        """The question is flags and the contents of files: of a profile, a grid, a recorded workload."""
        shutil.copy(TESTBED, os.path.join(self.folder, "cluster.toml"))
        self.write_grid(heads=[8, 16])
        shared = ["--cluster", "./cluster.toml", "--out", "r.jsonl"]
        bench = ["layerbench", *shared, "--grid", "./g.toml", "--check-only", "--schedule", "tutel,fsmoe"]
        before = self.broken_off(bench)
        for change in (["--seed", "2"], ["--dispatcher", "1dh"], ["--workload", "balanced"],
                       ["--grid-layers", "1"], ["--degree-forward", "2"], ["--timeout", "61"]):
            self.expect_refused(before, bench + change)
        self.write_grid(heads=[8, 4])
        self.expect_refused(before, bench)
        self.write_grid(heads=[8, 16])
        self.expect_resumed(before, bench + ["--json"])
        self.expect_refused(self.broken_off(bench + ["--overwrite"]),
                            ["microbench", *shared, "-b", "64K", "--repetitions", "1"])
        ops = ["microbench", *shared, "-b", "64K", "--repetitions", "1"]
        before = self.broken_off(ops + ["--overwrite"])
        self.expect_refused(before, ops + ["-c", "0"])
        with open(os.path.join(self.folder, "cluster.toml"), "a") as file:
            file.write("# measured again\n")
        self.expect_refused(before, ops)
        shutil.copy(TESTBED, os.path.join(self.folder, "cluster.toml"))
        self.expect_resumed(before, ops)

    def test_a_recorded_workload_counts(self):
        words = ["layerbench", "--out", "r.jsonl", "--batch", "1", "--seq", "32", "--model-dim", "64", "--heads", "4",
                 "--capacity-factor", "none", "--check-only", "--schedule", "tutel,fsmoe", "--workload", "trace:t.csv"]

        def record(experts):
            with open(os.path.join(self.folder, "t.csv"), "w") as file:
                file.write("token,layer,experts\n" + "".join(f"{token},0,{experts}\n" for token in range(4096)))
        record("0 1")
        before = self.broken_off(words)
        record("1 0")
        self.expect_refused(before, words)
        record("0 1")
        self.expect_resumed(before, words)


if __name__ == "__main__":
    unittest.main()
