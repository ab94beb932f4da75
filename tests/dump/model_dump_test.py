"""usage: model_dump_test.py PROGRAM

`modelbench --dump`: numpy, which knows the formulas alone, computes whole models from their tokens and weights, and
finds the loss and every gradient that the ranks wrote; its own gradients are what its own loss's differences say."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs/models"
import check_dump  # noqa: E402 (may start this script anew under another Python, with these arguments)

np = check_dump.np
sys.argv.pop(1)
GPT, MIXTRAL = ["--model", "tiny-gpt", "--dtype", "float64"], ["--model", "tiny-mixtral", "--dtype", "float64"]
SMALL = ["--batch", "1", "--seq", "16"]
MODELS = {
    "gpt": [*GPT, "--schedule", "fsmoe,ds-moe-replicated"],
    "mixtral": [*MIXTRAL, "--schedule", "fsmoe,parm-s2"],
    "drops": [*GPT, *SMALL, "--schedule", "tutel,lina", "--gate", "switch", "--capacity-factor", "0.7", "--aux-loss",
              "0.3", "--z-loss", "0.1"],
    "sigmoid": [*MIXTRAL, *SMALL, "--schedule", "monta-o2", "--gate", "sigmoid", "--shared-hidden", "32"],
    "bare": [*MIXTRAL, *SMALL, "--schedule", "tutel", "--norm", "none", "--layers", "1"],
    "stages": [*GPT, *SMALL, "--schedule", "fsmoe", "--pp", "2", "--micro-batches", "3", "--pipeline", "1f1b"],
    "split": [*MIXTRAL, *SMALL, "--schedule", "tutel,parm-s1", "--dp", "4", "--mp", "1", "--ep", "4", "--esp", "1",
              "--zero", "1", "--micro-batches", "2", "--layers", "3"],
    "shared samples": [*GPT, *SMALL, "--schedule", "fsmoe,tutel", "--dp", "2", "--cp", "2", "--mp", "1", "--ep", "4",
                       "--esp", "1", "--micro-batches", "2"],
    "shared stages": [*MIXTRAL, *SMALL, "--schedule", "fsmoe", "--cp", "2", "--pp", "2", "--mp", "1", "--micro-batches",
                      "2"],
    "bert": ["--model", "tiny-bert", "--dtype", "float64", "--schedule", "fsmoe,ds-moe-replicated"],
    "prenorm-bert": ["--model", "tiny-bert", "--dtype", "float64", *SMALL, "--schedule", "tutel", "--norm", "layernorm",
                     "--bias", "--mp", "2", "--dp", "2", "--ep", "2", "--esp", "1", "--shared-hidden", "32"],
    "biases": [*GPT, *SMALL, "--schedule", "fsmoe,parm-s1", "--bias", "--ffn", "gpt-tanh", "--mp", "2", "--dp", "2",
               "--ep", "2", "--esp", "2", "--norm", "post-layernorm"],
    "gated-biases": [*MIXTRAL, *SMALL, "--schedule", "lina", "--bias", "--norm", "layernorm"],
    "single": ["--model", "tiny-mixtral", "--schedule", "fsmoe"],
    "dense": ["--model", "DENSE", "--dtype", "float64", "--schedule", "fsmoe,parm-s1,ds-moe-replicated,monta-o2"],
    "dense stages": ["--model", "DENSE", "--dtype", "float64", "--ffn", "gpt", "--rope-theta", "0", "--schedule",
                     "fsmoe,lina-packed", "--pp", "2", "--micro-batches", "2", "--zero", "1"],
    "dense windows": ["--model", "WINDOWS", "--dtype", "float64", "--schedule", "fsmoe,ds-moe"],
}
# Experts in every second layer, whose first one has none either.
DENSE = """schema = 1
name = "some-dense"
source = "made for this test"
layers = 5
moe_every = 2
first_dense = 3
dense_hidden = 96
vocabulary = 64
[layer]
batch = 2
seq = 16
model_dim = 32
hidden = 48
heads = 4
kv_heads = 4
rope_theta = 1e4
experts = 4
top_k = 2
capacity_factor = "none"
ffn = "mixtral"
"""
EMULATED = ["--cluster", "testbed-b", "--model", "gpt2-xl@fsmoe", "--layers", "2", "--schedule", "tutel"]


class ModelDumps(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def modelbench(self, *arguments):
        return subprocess.run([PROGRAM, "modelbench", "--check-only", "--out", os.path.join(self.folder, "r.jsonl"),
                               "--overwrite", *arguments], capture_output=True, text=True)

    def dump(self, *model):
        file = os.path.join(self.folder, "dense.toml")
        windows = os.path.join(self.folder, "windows.toml")
        with open(file, "w") as target:
            target.write(DENSE)
        with open(windows, "w") as target:
            target.write(DENSE.replace("[layer]", 'windowed_layers = "10"\n[layer]\nwindow = 5'))
        model = [{"DENSE": file, "WINDOWS": windows}.get(argument, argument) for argument in model]
        to = os.path.join(self.folder, "dump")
        found = self.modelbench(*model, "--dump", to)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        schedules = model[model.index("--schedule") + 1].split(",")
        return [os.path.join(to, schedule) for schedule in schedules]

    def checked(self, folder):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            check_dump.check(folder)
        return printed.getvalue()

    def manifest(self, folder):
        with open(os.path.join(folder, "manifest.json")) as file:
            return json.load(file)

    def tied(self, of):
        """A model whose output projection is the embedding."""
        path = os.path.join(self.folder, f"tied-{of}.toml")
        with open(CONFIGS / f"{of}.toml") as source, open(path, "w") as target:
            target.write(source.read().replace("tied_embedding = false", "tied_embedding = true"))
        return path

    def test_numpy_agrees(self):
        tied = {"tied": ["--model", self.tied("tiny-gpt"), "--schedule", "tutel", "--norm", "none"],
                "tied-stages": ["--model", self.tied("tiny-bert"), "--schedule", "fsmoe,lina", "--pp", "2",
                                "--micro-batches", "2", "--bias"]}
        for model in tied.values():
            model += ["--dtype", "float64", *SMALL]
        for name, model in {**MODELS, **tied}.items():
            for folder in self.dump("--cluster", "host", *model):
                with self.subTest(model=name, folder=folder):
                    printed = self.checked(folder)
                    print(name, printed, end="", file=sys.stderr)
                    self.assertIn("; loss ", printed)
                    manifest = self.manifest(folder)
                    self.assertEqual(manifest["tolerance"], 2e-5 if name == "single" else 1e-10)
                    weights = {w for rank in manifest["ranks"] for w in rank["tensors"] if w + ".gradient" in
                               rank["tensors"]}
                    dense = name.startswith("dense")
                    learns = name == "dense stages" if dense else "tiny-mixtral" not in model
                    self.assertEqual("places" in weights, learns)  # the others rotate by them
                    self.assertEqual(manifest.get("dense_layers", []), [0, 1, 2, 4] if dense else [])
                    self.assertEqual(manifest.get("windowed_layers"), "10101" if name == "dense windows" else None)
                    self.assertEqual("layer-0.bq" in weights, "--bias" in model)
                    self.assertEqual("head" in weights, "tied" not in name)
                    first = "layer-0.ffn_w1" if dense else "layer-0.w1"
                    self.assertLessEqual({"embedding", "layer-0.wq", first}, weights)
                    if name == "drops":
                        self.assertNotIn(" 0 of", printed)

    def test_what_ran_on_an_emulated_cluster(self):
        """A small model in the place of the one that is named."""
        folder = self.dump(*EMULATED)[0]
        self.assertIn("; loss ", self.checked(folder))
        self.assertEqual(self.manifest(folder)["layer"]["model_dim"], 64)

    def test_gradients_are_differences_of_the_loss(self):
        """Each weight moved a little along a random direction, with all choices as they were."""
        for model in (GPT, MIXTRAL):
            folder = self.dump("--cluster", "host", *model, *SMALL, "--schedule", "tutel")[0]
            manifest = self.manifest(folder)
            tensors = check_dump.whole_tensors(folder, manifest)
            manifest["tolerance"] = 1  # a choice may be worse than the best once weights move
            random, step = np.random.default_rng(7), 1e-5

            def loss(changed):
                ends = check_dump.ends_of(manifest, changed)
                check_dump.recomputed(manifest, changed, ends)
                return ends.loss

            weights = [name for name in tensors if name + ".gradient" in tensors]
            self.assertGreater(len(weights), 18)
            for name in weights:
                direction = random.standard_normal(tensors[name].shape)
                moved = [loss({**tensors, name: tensors[name] + sign * step * direction}) for sign in (1, -1)]
                expected = (moved[0] - moved[1]) / (2 * step)
                gradient = tensors[name + ".gradient"]
                scale = np.linalg.norm(gradient)  # of what a random direction has of it
                self.assertGreater(scale, 0, name)
                self.assertLess(abs((gradient * direction).sum() - expected), 1e-5 * scale + 1e-9, name)

    def test_what_was_changed_shows(self):
        folder = self.dump("--cluster", "host", *GPT, *SMALL, "--schedule", "tutel")[0]
        file = os.path.join(folder, "manifest.json")
        manifest = self.manifest(folder)
        with open(file, "w") as target:
            json.dump({**manifest, "loss": manifest["loss"] * (1 + 1e-8)}, target)
        with self.assertRaisesRegex(AssertionError, "loss"):
            self.checked(folder)
        with open(file, "w") as target:
            json.dump(manifest, target)
        self.checked(folder)
        for name, change in (("embedding.gradient", 1e-6), ("micro-batch-0.targets", 1), ("head", 1e-6)):
            for rank in manifest["ranks"]:
                self.change(os.path.join(folder, rank["file"]), name, change)
            with self.assertRaises(AssertionError, msg=name):
                self.checked(folder)
            for rank in manifest["ranks"]:
                self.change(os.path.join(folder, rank["file"]), name, -change)
        self.checked(folder)

    def change(self, path, name, by):
        """Changes the first element of a file's tensor."""
        with open(path, "rb") as source:
            data = bytearray(source.read())
        header = int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:8 + header])[name]
        at, kind = 8 + header + entry["data_offsets"][0], np.dtype({"F64": "<f8", "I32": "<i4"}[entry["dtype"]])
        value = np.frombuffer(bytes(data[at:at + kind.itemsize]), kind)[0]
        data[at:at + kind.itemsize] = (value + np.asarray(by, kind)).astype(kind).tobytes()
        with open(path, "wb") as target:
            target.write(data)

    def test_nothing_is_trained(self):
        found = self.modelbench("--cluster", "host", *GPT, *SMALL, "--schedule", "tutel")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("Gradients of the first step, of markov", found.stdout)
        self.assertNotIn("step ms", found.stdout)
        with open(os.path.join(self.folder, "r.jsonl")) as file:
            cases = [line for line in map(json.loads, file) if line["kind"] == "case"]
        self.assertEqual([(case["status"], case["samples"]) for case in cases], [("ok", {})])

    def test_a_folder_that_cannot_be_made(self):
        file = os.path.join(self.folder, "file")
        open(file, "w").close()
        found = self.modelbench("--cluster", "host", *GPT, "--schedule", "tutel", "--dump", file)
        self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
        self.assertEqual(len(found.stderr.splitlines()), 1)
        self.assertIn(f"--dump: cannot make {file}", found.stderr)


if __name__ == "__main__":
    unittest.main()
