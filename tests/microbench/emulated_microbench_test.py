"""usage: emulated_microbench_test.py PROGRAM EMULATED

`microbench --modules --device cuda` on a GPU that is emulated (EMULATED), from its flags to a profile and prices; and
the cases of configs/ci/gpu.toml, made small, through the gate."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

PROGRAM, EMULATED = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = """schema = 1
name = "NAME"
source = "made for a test"
layers = 2
vocabulary = VOCABULARY
[layer]
batch = 1
seq = SEQ
model_dim = WIDTH
hidden = HIDDEN
heads = HEADS
experts = EXPERTS
top_k = 2
capacity_factor = CAPACITY
ffn = "mixtral"
dtype = "float32"
"""
# Name, vocabulary, L, M, H, heads, E, f: enough of each to tell what a row's time grows with.
MODELS = [("a", 64, 32, 16, 16, 2, 4, 1.2), ("b", 128, 16, 32, 16, 4, 2, 1.2), ("c", 96, 64, 16, 32, 1, 4, '"none"'),
          ("d", 256, 8, 32, 64, 2, 8, 1.2)]


class EmulatedMicrobench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        for model in MODELS:
            text = MODEL
            for key, value in zip(("NAME", "VOCABULARY", "SEQ", "WIDTH", "HIDDEN", "HEADS", "EXPERTS", "CAPACITY"),
                                  model):
                text = text.replace(key, str(value))
            (cls.folder / f"{model[0]}.toml").write_text(text)
        cls.cases = {dtype: cls.modules(dtype, f"{dtype}.jsonl") for dtype in ("float32", "bfloat16")}

    @classmethod
    def run_program(cls, program, *words, code=0):
        found = subprocess.run([program, *map(str, words)], cwd=cls.folder, capture_output=True, text=True)
        if found.returncode != code:
            raise AssertionError(f"{words}: {found.returncode}, expected {code}\n{found.stdout}{found.stderr}")
        return found

    @classmethod
    def modules(cls, dtype, out):
        """The cases that a run leaves, or that it has left."""
        names = ",".join(f"./{model[0]}.toml" for model in MODELS)
        cls.run_program(EMULATED, "microbench", "--cluster", "host", "--device", "cuda", "--op", "module",
                        f"--modules={names}", "--dtype", dtype, "--out", out)
        lines = [json.loads(line) for line in (cls.folder / out).read_text().splitlines()]
        return [line for line in lines if line["kind"] == "case"]

    def test_every_part_has_rows_of_the_layers_own_tasks(self):
        for dtype, cases in self.cases.items():
            rows = collections.defaultdict(set)
            for case in cases:
                of = case["parameters"]
                self.assertEqual((case["status"], of["op"], of["dtype"], of["cluster"]),
                                 ("ok", "task", dtype, "host-cuda"), case)
                self.assertGreater(case["summary"]["median_s"], 0)
                rows[of["name"], of["phase"]].add(of["layer"])
            layers = {f"{name}-L{length}" for name, _, seq, *_ in MODELS for length in (seq, seq // 4)}
            ends = {f"{model[0]}-ends" for model in MODELS}
            for part in ("attention", "gate:gshard", "order:tutel", "i-order:tutel", "expert:mixtral"):
                for phase in ("forward", "backward"):
                    self.assertEqual(rows[part, phase], layers | ends, f"{part} {phase}")
            for part, phase in (("head", "forward"), ("head", "backward"), ("embed", "forward"), ("squares", "step"),
                                ("optimizer", "step")):
                self.assertEqual(rows[part, phase], ends, f"{part} {phase}")

    def test_counts_are_those_of_the_shapes(self):
        """FLOPs and bytes of each task, counted anew from the definitions."""
        models = {name: (v, l, m, h, e) for name, v, l, m, h, heads, e, f in MODELS}
        for case in self.cases["float32"]:
            of = case["parameters"]
            name, _, length = of["layer"].partition("-L")
            degree = int(re.search("/r([0-9]+)/", case["key"])[1])
            if not length or name == "c":  # whose rows no capacity fixes
                continue
            _, _, m, h, e = models[name]
            tokens = int(length)
            passes = 2 if of["phase"] == "backward" else 1
            if of["name"] == "attention":
                self.assertEqual(of["flop"], passes * 2 * (4 * tokens * m * m + 2 * tokens * tokens * m), case["key"])
                self.assertEqual(of["weight_byte"], 4 * 4 * m * m, case["key"])
            if of["name"] == "expert:mixtral":
                rows = -(-2 * 1.2 * tokens // e)
                flops = passes * 2 * 3 * e * rows * m * h
                self.assertAlmostEqual(of["flop"], flops / degree, delta=1, msg=case["key"])

    def test_rows_become_prices(self):
        self.run_program(PROGRAM, "fit", "--records", "bfloat16.jsonl", "--network-from", "h100-8", "--name", "mine",
                         "--out", "mine.toml")
        with open(self.folder / "mine.toml", "rb") as file:
            profile = tomllib.load(file)
        tasks = {(row["name"], row["phase"]) for row in profile["task"]}
        for part in ("attention", "gate:gshard", "order:tutel", "expert:mixtral", "head"):
            self.assertLessEqual({(part, "forward"), (part, "backward")}, tasks)
        self.assertIn(("optimizer", "step"), tasks)
        self.assertEqual((profile["topology"]["nodes"], profile["topology"]["ranks_per_node"]), (1, 8))
        words = ["--schedule", "fsmoe", "--model", "qwen3-30b-a3b", "--layers", "2", "--json", "--cluster"]
        mine, modelled = (json.loads(self.run_program(PROGRAM, "simulate", *words, cluster).stdout)
                          for cluster in ("mine.toml", "h100-8"))
        # An emulated GPU is slow.
        self.assertGreater(mine["schedules"][0]["total_s"], modelled["schedules"][0]["total_s"])

    def test_a_run_that_was_broken_off_goes_on(self):
        lines = (self.folder / "float32.jsonl").read_text().splitlines(keepends=True)
        kept = 3 * len(lines) // 4
        (self.folder / "broken.jsonl").write_text("".join(lines[:kept]).replace("float32.jsonl", "broken.jsonl"))
        again = self.modules("float32", "broken.jsonl")
        self.assertEqual([case["key"] for case in again], [case["key"] for case in self.cases["float32"]])
        for one, other in zip(self.cases["float32"][:kept - 1], again):
            self.assertEqual(one["summary"], other["summary"])

    def test_what_is_no_model_is_refused(self):
        found = self.run_program(EMULATED, "microbench", "--cluster", "host", "--device", "cuda", "--modules=gpt-5",
                                 "--op", "module", "--out", "r.jsonl", code=2)
        self.assertIn("found 'gpt-5'", found.stderr)

    def test_the_gate_of_gpu_runners(self):
        """Every line of configs/ci/gpu.toml, with few small layers and messages in the place of its own."""
        text = (ROOT / "configs/ci/gpu.toml").read_text()
        smaller = {"--grid [^ ]+ --grid-layers [^ ]+": "--batch 1 --seq 16 --model-dim 16 --hidden 16 --heads 2 "
                                                       "--experts 2",
                   "--min-bytes [^ ]+ --max-bytes [^ ]+ --step-factor [^ ]+":
                       "--op alltoall --min-bytes 1K --max-bytes 4K --step-factor 4",
                   "--iterations [0-9]+": "--iterations 3", "--repetitions [0-9]+": "--repetitions 3"}
        for pattern, small in smaller.items():
            text, count = re.subn(pattern, small, text)
            self.assertEqual(count, 1, pattern)
        (self.folder / "small.toml").write_text(text)
        gate = [PROGRAM, "ab", "--base", EMULATED, "--head", EMULATED, "--cases", "small.toml", "--json", "--quiet",
                "--delta", "100"]  # launches alike need no more pairs
        found = subprocess.run(gate, cwd=self.folder, capture_output=True, text=True)
        self.assertIn(found.returncode, (0, 1), found.stdout + found.stderr)  # 1: on a busy machine anything is slow
        cases = [case["case"] if "case" in case else case["key"] for case in json.loads(found.stdout)["cases"]]
        self.assertEqual(len(cases), 4, cases)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
