"""usage: emulated_modelbench_test.py PROGRAM EMULATED

The verb `modelbench` with --device cuda from its flags to its records, on a GPU that is emulated (EMULATED), beside the
same on the CPU (PROGRAM)."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, EMULATED = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
TESTBED = pathlib.Path(__file__).resolve().parents[2] / "configs/clusters/testbed-b.toml"
STEPS = 3
TRAINS = ["--steps", str(STEPS), "--held-out", "1", "--json", "--out", "r.jsonl", "--overwrite"]


class EmulatedModelbench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, program, *arguments):
        return subprocess.run([program, "modelbench", *arguments], cwd=self.folder, capture_output=True, text=True)

    def printed(self, program, *arguments):
        found = self.run_program(program, *arguments)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return json.loads(found.stdout)

    def own_cluster(self, name):
        """A profile as of this machine's own ranks, so that nothing is measured and nothing paced."""
        text = TESTBED.read_text()
        for key, value in (("name", f'"{name}"'), ("nodes", 2), ("ranks_per_node", 2), ("ranks", 2)):
            text = re.sub(f"^{key} = .*", f"{key} = {value}", text, flags=re.MULTILINE)
        (self.folder / f"{name}.toml").write_text(text)
        return ["--cluster", f"{name}.toml", "--model", "tiny-gpt", "--layers", "1"]

    def expect_same_losses(self, there, here):
        for on_gpu, on_cpu in zip(there["schedules"], here["schedules"], strict=True):
            self.assertEqual(on_gpu["schedule"], on_cpu["schedule"])
            self.assertEqual(len(on_gpu["loss"]), STEPS)
            for loss, expected in zip(on_gpu["loss"], on_cpu["loss"], strict=True):
                self.assertAlmostEqual(loss, expected, delta=1e-4 * expected)
            held_out = on_cpu["measured"]["held_out_loss"]
            self.assertAlmostEqual(on_gpu["measured"]["held_out_loss"], held_out, delta=1e-4 * held_out)

    def test_trains_on_an_emulated_cluster_as_the_cpu_does(self):
        words = ["--layers", "1", "--schedule", "fsmoe", *TRAINS]
        self.expect_same_losses(self.printed(EMULATED, "--device", "cuda", *words), self.printed(PROGRAM, *words))

    def test_trains_on_this_machines_ranks_as_the_cpu_does(self):
        words = ["--mp", "2", "--esp", "2", "--zero", "1", "--schedule", "fsmoe,tutel", *TRAINS]
        here = self.printed(PROGRAM, *self.own_cluster("host"), *words)
        there = self.printed(EMULATED, "--device", "cuda", *self.own_cluster("host-cuda"), *words)
        self.expect_same_losses(there, here)
        records = [json.loads(line) for line in (self.folder / "r.jsonl").read_text().splitlines()]
        run = next(line for line in records if line["kind"] == "run")
        self.assertEqual((run["ranks"]["device"], run["ranks"]["gpu"]), ("cuda", "emulated"))
        self.assertEqual([line["status"] for line in records if line["kind"] == "case"], ["ok", "ok"])

    def test_trains_in_16_bits(self):
        words = [*self.own_cluster("host-cuda"), "--nearest", "--device", "cuda", "--schedule", "fsmoe", *TRAINS]
        wide, brain = (self.printed(EMULATED, *words, "--dtype", dtype)["schedules"][0]["loss"]
                       for dtype in ("float32", "bfloat16"))
        for loss, expected in zip(brain, wide, strict=True):
            self.assertAlmostEqual(loss, expected, delta=0.01 * expected)
        self.assertNotEqual(brain, wide)

    def test_goes_on_from_a_checkpoint_of_the_cpu(self):
        words = ["--schedule", "fsmoe", "--checkpoint", "kept", "--checkpoint-every", "1", *TRAINS]
        whole = self.printed(PROGRAM, *self.own_cluster("host"), *words)
        shutil.rmtree(self.folder / "kept" / f"step-{STEPS:06}")
        words = [*self.own_cluster("host-cuda"), *words]
        self.expect_same_losses(self.printed(EMULATED, "--device", "cuda", *words), whole)

    def test_float16_is_refused_in_one_line(self):
        found = self.run_program(EMULATED, "--device", "cuda", "--cluster", "host", "--check-only", "--dtype",
                                 "float16", "--layers", "1", "--schedule", "fsmoe", "--out", "r.jsonl")
        self.assertEqual(found.returncode, 2, found.stdout + found.stderr)
        self.assertEqual(found.stderr, "moetune: dtype float16: gradients of models vanish without loss scaling, "
                                       "expected float32, float64 or bfloat16\n")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
