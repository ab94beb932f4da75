"""Every script of plots/ draws a picture of small records, says what is missing, and refuses bad input in one line."""
import contextlib
import gzip
import html
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-matplotlib", "matplotlib")
PLOTS, DATA = os.path.join(HERE, "..", "..", "plots"), os.path.join(HERE, "data")
sys.path.insert(0, PLOTS)
FIT = ["microbench.jsonl", "--profile", "fitted.toml"]

# Script, arguments, and texts that its picture must have.
PICTURES = [
    ("timelines", ["layer.jsonl"], ["ds-moe", "fsmoe", "inter", "intra", "compute", "AlltoAll",
                                    "gradients and weights",
                                    "time since the start of the forward, ms", "Source:"]),
    ("timelines", ["layer.jsonl", "--schedule", "tutel"], ["tutel", "comm"]),
    ("degrees", ["layer.jsonl"], ["degree r (chunks)", "time of the backward, ms", "Source:"]),
    ("speedup_distribution", ["plan.jsonl"], ["fsmoe", "ds-moe", "speedup over tutel", "mean", "Source:"]),
    ("speedup_distribution", ["plan.jsonl", "--baseline", "ds-moe"], ["speedup over ds-moe"]),
    ("fit", FIT, ["time, ms", "volume over time, GB/s", "volume, MiB", "work, GFLOP", "alltoall inter 8",
                    "gemm float32", "attention backward 256", "Source:"]),
    ("busbw", ["microbench.jsonl"], ["bus bandwidth, GB/s", "volume, MiB", "allreduce inter 8: at most 2.89 GB/s",
                                    "Source:"]),
    ("predicted", ["verified.jsonl"], ["predicted, ms", "measured, ms", "9 runs on testbed-b, emulated", "tutel",
                                       "No run is an outlier", "Source:"]),
    ("winners", ["plan.jsonl"], ["fsmoe: 4", "B4 L1024", "M1024 H4096", "4 layers on testbed-b", "Source:"]),
    ("winners", ["plan.jsonl", "--schedule", "ds-moe"], ["ds-moe: 4"]),
    ("winners", ["ran.jsonl.gz"], ["fsmoe: 3", "3 layers on testbed-b, measured, emulated cluster."]),
    ("speedup_distribution", ["ran.jsonl.gz"], ["3 layers on testbed-b, measured, emulated cluster."]),
    ("critical_path", ["layer.jsonl"], ["share of the critical path, %", "fsmoe", "collectives of ESP", "Source:"]),
    ("memory_stack", ["memory.json"], ["activations", "memory of a rank", "counted", "mixtral-7b", "Source:"]),
    ("memory_stack", ["memory.json", "memory.json"], ["weights", "ZeRO 1, 1 in flight, recompute none"]),
    ("contention", ["a800"], ["slowed lane", "+ 520 us", "copy", "pairs are not in the profile",
                              "No factor is above 1.", "Source:"]),
    ("contention", ["slow.toml"], ["times as long", "1.50x", "slowed lane"]),
    ("degree_map", ["layer.jsonl"], ["degree of the forward, r_f", "fsmoe:", "they have one degree: ds-moe",
                                    "Source:"]),
    ("stragglers", ["verified.jsonl"], ["rank 3", "9 runs on testbed-b", "Source:"]),
    ("serving", ["served.jsonl"], ["lina-serve", "a layer of a batch", "p99", "predicted", "placed again", "Source:",
                                   "on testbed-b, measured, emulated cluster: 4 batches through 4 layers"]),
    ("serving", ["serving.jsonl"], ["no-estimation", "on a100-8, predicted: 10 batches through 6 layers"]),
    ("loss", ["training.jsonl"], ["loss, nats a token", "tutel", "fsmoe, held out:", "no model is below", "Source:",
                                  "tiny-gpt on host, trained on markov"]),
    ("loss", ["training.jsonl", "--schedule", "fsmoe"], ["fsmoe", "0 schedules are left out"]),
    ("fsmoe_fig5", [], ["testbed-a: collectives", "No markers on testbed-a and testbed-b", "Source:"]),
    ("fsmoe_fig5", ["--records", "microbench.jsonl"], ["Markers on testbed-b: emulated", "No markers on testbed-a"]),
    ("fsmoe_fig6", [], ["paper", "Printed numbers alone", "Source:"]),
    ("fsmoe_fig6", ["fsmoe-fig6.jsonl"], ["paper", "fsmoe over tutel, mean", "Source:"]),
    ("fsmoe_fig7", [], ["over tutel, by P", "Printed numbers alone", "Source:"]),
    ("fsmoe_fig7", ["fsmoe-fig7.jsonl"], ["over tutel, by P", "3: Mixtral-22B too", "Source:"]),
    ("fsmoe_fig8", [], ["fsmoe over ds-moe", "Printed numbers alone", "Source:",
                        "ours: no records given; moetune reproduce fsmoe-fig8 "]),
    ("fsmoe_fig8", ["fsmoe-fig8.jsonl"], ["fsmoe over tutel", "Not computable from print", "Source:",
                                          "number of micro-batches", "assume fsmoe-pipeline"]),
    ("parm_fig6", [], ["Parm testbed-a", "gathered volume, MiB", "no coefficient", "Source:"]),
    ("parm_fig6", FIT, ["testbed-b of moetune, emulated cluster", "allgather intra 4", "another cluster"]),
    ("parm_fig7", [], ["paper: mean 4.91x", "Printed numbers alone", "Source:",
                       "ours: no records given; moetune reproduce parm-table4 "]),
    ("parm_fig7", ["parm.jsonl"], ["paper: mean 4.91x", "ours: 4 layers", "Source:"]),
    ("parm_fig7", ["parm-table4.jsonl"], ["paper: mean 4.91x", "ours: mean", "assumed coefficients", "Source:"]),
    ("monta_fig13", [], ["paper: alltoall", "Printed numbers alone", "Source:"]),
    ("monta_fig13", ["monta-fig13.jsonl"], ["paper: alltoall", "ours: allgather", "Source:"]),
    ("monta_fig14", [], ["chosen in the paper", "Printed numbers alone", "Source:"]),
    ("monta_fig14", ["monta-fig14.jsonl"], ["ours: o1", "paper: o3", "chosen in the paper", "Source:"]),
    ("lina_fig15", ["lina-training.jsonl"], ["paper", "step, 16 experts", "Not computable from print", "Source:",
                                             "AlltoAll, AllReduce: alpha, beta", "assume lina-a100"]),
    ("lina_fig15", [], ["mean speedup over DeepSpeed-MoE, x", "Printed numbers alone", "Source:",
                        "ours: no records given; moetune reproduce lina-training "]),
]
NEEDS_RECORDS = {"timelines", "degrees", "speedup_distribution", "fit", "busbw", "predicted", "winners",
                 "critical_path", "memory_stack", "contention", "degree_map", "stragglers", "serving",
                 "loss"}
NOT_OF_RECORDS = {"memory_stack", "contention"}  # a JSON document; a profile


def text_of(path):
    with open(path) as file:
        return file.read()


def json_lines(path):
    return [json.loads(line) for line in text_of(path).splitlines()]


def run(script, arguments):
    """The script's exit code and what it printed, in this process: starting matplotlib anew takes a second each."""
    out, err, code, argv = io.StringIO(), io.StringIO(), 0, sys.argv
    sys.argv = [script + ".py"] + arguments
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_path(os.path.join(PLOTS, script + ".py"), run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


class InScratch(unittest.TestCase):
    def setUp(self):
        self.before, self.folder = os.getcwd(), tempfile.mkdtemp()
        for name in os.listdir(DATA):
            shutil.copy(os.path.join(DATA, name), self.folder)
        os.chdir(self.folder)
        with open("slow.toml", "w") as file:
            file.write('name = "slow"\n[topology]\nnodes = 1\n[contention]\nintra_by_inter = 1.5\n')
        with gzip.open("ran.jsonl.gz", "wt") as file:  # runs alone, as records of a whole grid that ran are
            file.write(text_of("verified.jsonl"))

    def tearDown(self):
        os.chdir(self.before)
        shutil.rmtree(self.folder)

    def expect_refusal(self, script, arguments, *parts):
        code, out, err = run(script, arguments)
        self.assertEqual((code, out), (2, ""), (script, arguments, err))
        self.assertEqual(err.count("\n"), 1, err)
        for part in parts:
            self.assertIn(part, err)


class Pictures(InScratch):
    def test_all_scripts_are_drawn_here(self):
        scripts = {name[:-3] for name in os.listdir(PLOTS)
                   if name.endswith(".py") and 'if __name__ ==' in text_of(os.path.join(PLOTS, name))}
        self.assertEqual(scripts, {script for script, _, _ in PICTURES} | {"history"})  # tests/regress draws that one

    def test_each_has_its_texts(self):
        for script, arguments, texts in PICTURES:
            with self.subTest(script=script, arguments=arguments):
                code, out, err = run(script, arguments + ["--out", "sub/a.svg"])
                self.assertEqual((code, out, err), (0, "sub/a.svg\n", ""))
                lines = [line.strip() for line in text_of("sub/a.svg").splitlines()]  # texts are shapes, with a comment
                drawn = " ".join(html.unescape(line[5:-4]) for line in lines if line.startswith("<!-- "))
                for text in texts:
                    self.assertIn(text, drawn)
                self.assertNotIn("nan", drawn.split())
                os.remove("sub/a.svg")

    def test_each_is_a_picture(self):
        from matplotlib import image
        for script, arguments in {script: arguments for script, arguments, _ in PICTURES}.items():
            with self.subTest(script=script):
                code, out, _ = run(script, arguments)
                self.assertEqual(code, 0)
                pixels = image.imread(out.strip())  # where it goes without --out
                self.assertGreater(min(pixels.shape[:2]), 300)
                self.assertGreater(len({tuple(pixel) for pixel in pixels[::3, ::3].reshape(-1, 4)}), 8, "blank")

    def test_is_a_program(self):
        for arguments, code in ((["--out", "a.png"], 0), (["--what"], 2)):
            found = subprocess.run([sys.executable, "-B", os.path.join(PLOTS, "parm_fig6.py")] + arguments,
                                   capture_output=True, text=True)
            self.assertEqual(found.returncode, code, found.stderr)
        self.assertEqual(found.stderr.count("\n"), 1, found.stderr)


class BadInput(InScratch):
    def write(self, text, name="bad.jsonl"):
        with open(name, "w") as file:
            file.write(text)
        return name

    def records_of(self, script):
        arguments = next(a for s, a, _ in PICTURES if s == script and a)
        return (["--records"], arguments[2:]) if arguments[0] == "--records" else ([], arguments[1:])

    def with_records(self):
        return [script for script in dict.fromkeys(s for s, _, _ in PICTURES) if any(
            s == script and a for s, a, _ in PICTURES) and script not in NOT_OF_RECORDS]

    def test_records_that_are_none(self):
        run_line = text_of("layer.jsonl").splitlines(keepends=True)[0]
        broken = {
            "missing.jsonl": "missing.jsonl: found no readable file",
            ".": ".: found no readable file",
            self.write("", "empty.jsonl"): "empty.jsonl: found no run",
            self.write("[1]\n", "list.jsonl"): "list.jsonl:1: record: found '[1]'",
            self.write('{"kind":"case"}\n', "case.jsonl"): "case.jsonl:1: kind: found 'case' outside a run",
            self.write(run_line + '{"kind":"ca\n{"kind":"end"}\n', "torn.jsonl"): "torn.jsonl:2: record:",
            self.write(run_line + '{"kind":"case","key":3}\n', "key.jsonl"): "key.jsonl:2: key: found 3",
            self.write(run_line + '{"kind":"cases","key":"k","tables":[{"columns":["key"],"rows":[[]]}]}\n',
                       "row.jsonl"): "row.jsonl:2: tables[0]: found",
            self.write(run_line + '{"kind":"end"}\n', "none.jsonl"): "none.jsonl: ",
        }
        for script in self.with_records():
            before, after = self.records_of(script)
            for path, said in broken.items():
                with self.subTest(script=script, path=path):
                    self.expect_refusal(script, before + [path] + after, said, "expected")

    def test_records_of_another_verb(self):
        for script in self.with_records():
            before, after = self.records_of(script)
            other = "layer.jsonl" if script in ("speedup_distribution", "parm_fig7", "winners") else "plan.jsonl"
            with self.subTest(script=script):
                self.expect_refusal(script, before + [other] + after, other, "expected records of `moetune")
        self.expect_refusal("monta_fig13", ["monta-fig14.jsonl"], "table: found monta-fig14, expected monta-fig13")

    def test_a_torn_last_line_is_skipped(self):
        lines = text_of("layer.jsonl").splitlines(keepends=True)
        self.write("".join(lines[:-1]) + '{"kind":"case","key":"simulate/x","par', "torn.jsonl")
        self.assertEqual(run("timelines", ["torn.jsonl", "--out", "a.png"])[0], 0)

    def test_numbers_that_are_none(self):
        lines = json_lines("plan.jsonl")
        table = lines[1]["tables"][0]
        cells = [column for column in table["columns"] if isinstance(column, str)]
        table["rows"][0][cells.index("prediction.total_s")] = None
        self.write("".join(json.dumps(line) + "\n" for line in lines))
        self.expect_refusal("speedup_distribution", ["bad.jsonl"], "bad.jsonl:2: prediction.total_s: found None")
        self.write(text_of("layer.jsonl").replace('"start_s":0.0', '"start":0.0', 1))
        self.expect_refusal("timelines", ["bad.jsonl"], "bad.jsonl:2: timeline: found")

    def test_broken_archives(self):
        with open("half.jsonl.gz", "wb") as file:
            file.write(gzip.compress(text_of("verified.jsonl").encode())[:200])
        self.expect_refusal("winners", ["half.jsonl.gz"], "half.jsonl.gz: found no readable file", "expected records")
        self.expect_refusal("winners", [self.write("text", "text.jsonl.gz")], "text.jsonl.gz: found no readable file")

    def test_a_picture_of_an_archive_is_beside_it(self):
        self.assertEqual(run("winners", ["ran.jsonl.gz"])[:2], (0, "ran.winners.png\n"))

    def test_flags(self):
        self.expect_refusal("timelines", ["layer.jsonl", "--schedule", "no"], "--schedule: found 'no', expected some")
        self.expect_refusal("speedup_distribution", ["plan.jsonl", "--baseline", "no"], "--baseline: found 'no'")
        self.expect_refusal("fit", ["microbench.jsonl", "--profile", "layer.jsonl"], "layer.jsonl: found no TOML")
        self.expect_refusal("fit", ["microbench.jsonl", "--profile", "no.toml"], "no.toml: found no readable file")
        self.write('schema = 1\n[topology]\nnodes = 1\n', "other.toml")
        self.expect_refusal("fit", ["microbench.jsonl", "--profile", "other.toml"], "found no row for alltoall inter 8")
        for script, arguments, _ in PICTURES:
            with self.subTest(script=script):
                self.expect_refusal(script, arguments + ["--out", "a.gif"], "--out: found 'a.gif'", ".png or .svg")
                self.expect_refusal(script, arguments + ["--out", "/proc/no/a.png"], "--out: found '/proc/no/a.png'")
                self.expect_refusal(script, arguments + ["--what"], "--what")
        for script in NEEDS_RECORDS:
            self.expect_refusal(script, [], "required")

    def test_profiles_and_documents(self):
        self.expect_refusal("contention", ["testbed-b"], "testbed-b: contention: found no table of this name")
        self.expect_refusal("contention", ["no.toml"], "no.toml: found no readable file")
        self.write("[topology]\nnodes = 1\n[contention]\nintra_by_inter = 0.5\n", "fast.toml")
        self.expect_refusal("contention", ["fast.toml"], "contention.intra_by_inter: found 0.5, expected LANE_by_LANE")
        self.expect_refusal("memory_stack", ["layer.jsonl"], "layer.jsonl: found no JSON document")
        self.expect_refusal("memory_stack", [self.write("[]", "list.json")], "list.json: estimates: found None")
        self.write(text_of("memory.json").replace('"weights_bytes":', '"weights":', 1), "less.json")
        self.expect_refusal("memory_stack", ["less.json"], "estimates[0]: weights_bytes: found None, expected bytes")

    def test_times_of_serving(self):
        self.write(text_of("served.jsonl").replace('"batch_p50_s":0.', '"batch_p50_s":-0.', 1))
        self.expect_refusal("serving", ["bad.jsonl"], "bad.jsonl:2: summary.batch_p50_s: found -0.", "expected")
        self.write(text_of("serving.jsonl").replace('"alltoall_p99_s"', '"alltoall_p98_s"', 1))
        self.expect_refusal("serving", ["bad.jsonl"], "bad.jsonl:2: prediction.alltoall_p99_s: found None, expected")
        self.write(text_of("serving.jsonl").replace('"status":"ok"', '"status":"error"'))
        self.expect_refusal("serving", ["bad.jsonl"],
                            "bad.jsonl: status: found no variant that is ok, expected at least one")

    def test_samples_of_ranks(self):
        self.write(text_of("verified.jsonl").replace('"total_s":[[', '"total_s":[[0,', 1))
        self.expect_refusal("stragglers", ["bad.jsonl"], "bad.jsonl:2: samples.total_s: found")

    def test_losses(self):
        self.expect_refusal("loss", ["verified.jsonl"], "samples.loss: found none, expected records of `moetune model")
        self.write(text_of("training.jsonl").replace('"loss":[[', '"loss":[["x"],[', 1))
        self.expect_refusal("loss", ["bad.jsonl"], "bad.jsonl:", "samples.loss: found [['x'], [", "a number a step")


if __name__ == "__main__":
    unittest.main(verbosity=1)
