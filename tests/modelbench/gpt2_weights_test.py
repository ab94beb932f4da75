"""usage: gpt2_weights_test.py PROGRAM

GPT-2's weights with the public checkpoints' names, read by modelbench: its logits are those of a GPT-2 by numpy alone,
over several ranks too; and what it writes is read back bit for bit."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-numpy", "numpy")
import numpy as np  # noqa: E402

PROGRAM = os.path.abspath(sys.argv.pop(1))

LAYERS, WIDTH, HIDDEN, HEADS, SEQ, VOCABULARY = 3, 24, 40, 4, 16, 21
MODEL = f"""
schema = 1
name = "small-gpt2"
source = "made for this test"
layers = {LAYERS}
vocabulary = {VOCABULARY}
tied_embedding = true
[layer]
batch = 2
seq = {SEQ}
model_dim = {WIDTH}
hidden = {HIDDEN}
heads = {HEADS}
kv_heads = {HEADS}
experts = 1
top_k = 1
capacity_factor = "none"
ffn = "gpt-tanh"
norm = "layernorm"
bias = true
"""
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
SHAPES = {  # and schedules; two nodes of two ranks each: host
    "one": ["--dp", "4", "--mp", "1", "--ep", "1", "--esp", "1", "--schedule", "fsmoe"],
    "sharded": ["--dp", "2", "--mp", "2", "--ep", "1", "--esp", "2", "--schedule", "tutel"],
    "replicated": ["--dp", "1", "--mp", "4", "--ep", "1", "--esp", "4", "--schedule", "ds-moe-replicated"],
    "stages": ["--pp", "2", "--dp", "2", "--mp", "1", "--ep", "1", "--esp", "2", "--micro-batches", "2", "--schedule",
               "lina"],
    "zero": ["--dp", "4", "--mp", "1", "--ep", "1", "--esp", "4", "--zero", "1", "--schedule", "parm-s1"],
}


def load_file(path):
    """A safetensors file's tensors."""
    data = pathlib.Path(path).read_bytes()
    first = 8 + int.from_bytes(data[:8], "little")
    entries = {name: e for name, e in json.loads(data[8:first]).items() if name != "__metadata__"}
    return {name: np.frombuffer(data[slice(*(first + at for at in e["data_offsets"]))],
                                TYPES[e["dtype"]]).reshape(e["shape"]) for name, e in entries.items()}


def save_file(tensors, path):
    types = {np.dtype(kind): name for name, kind in TYPES.items()}
    header, data = {}, b""
    for name, t in tensors.items():
        header[name] = {"dtype": types[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + t.nbytes]}
        data += t.tobytes()
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def random_weights(dtype, seq=SEQ):
    """Weights as the published files have them: matrices (in, out), queries, keys and values side by side."""
    random = np.random.default_rng(5)

    def normal(*shape):
        return (random.standard_normal(shape) / math.sqrt(shape[0] if len(shape) > 1 else 4)).astype(dtype)
    weights = {"wte.weight": normal(VOCABULARY, WIDTH), "wpe.weight": normal(seq, WIDTH)}

    def linear(name, rows, columns):
        weights[name + ".weight"], weights[name + ".bias"] = normal(rows, columns), normal(columns)

    def norm(name):
        weights[name + ".weight"], weights[name + ".bias"] = 1 + normal(WIDTH), normal(WIDTH)
    for layer in range(LAYERS):
        h = f"h.{layer}."
        norm(h + "ln_1")
        linear(h + "attn.c_attn", WIDTH, 3 * WIDTH)
        linear(h + "attn.c_proj", WIDTH, WIDTH)
        norm(h + "ln_2")
        linear(h + "mlp.c_fc", WIDTH, HIDDEN)
        linear(h + "mlp.c_proj", HIDDEN, WIDTH)
    norm("ln_f")
    return weights


def gpt2(w, tokens):
    """Logits of tokens (samples, L), by GPT-2's formulas."""
    w = {name: t.astype(np.float64) for name, t in w.items()}

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def attention(x, name):
        parts = np.split(linear(x, name + ".c_attn"), 3, axis=-1)
        q, k, v = (p.reshape(*p.shape[:2], HEADS, -1).transpose(0, 2, 1, 3) for p in parts)
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(WIDTH // HEADS)
        scores = np.where(np.tri(tokens.shape[1], dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (p / p.sum(-1, keepdims=True)) @ v
        return linear(mixed.transpose(0, 2, 1, 3).reshape(x.shape), name + ".c_proj")

    x = w["wte.weight"][tokens] + w["wpe.weight"][:tokens.shape[1]]
    for layer in range(LAYERS):
        h = f"h.{layer}."
        x = x + attention(norm(x, h + "ln_1"), h + "attn")
        a = linear(norm(x, h + "ln_2"), h + "mlp.c_fc")
        gelu = 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        x = x + linear(gelu, h + "mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def dumped(folder, name):
    """Whole tensors of all ranks' parts, by the axes that the manifest tells."""
    manifest = json.loads((folder / "manifest.json").read_text())
    whole = None
    for rank in manifest["ranks"]:
        if name not in rank["tensors"]:
            continue
        part, axes = load_file(folder / rank["file"])[name], rank["tensors"][name]
        if whole is None:
            whole = np.full([total for _, _, total in axes], -1, part.dtype)
        whole[tuple(slice(first, first + count) for first, count, _ in axes)] = part
    return whole


class Gpt2Weights(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "model.toml").write_text(MODEL)

    def modelbench(self, *arguments, model="model.toml", cluster="host"):
        return subprocess.run([PROGRAM, "modelbench", "--cluster", cluster, "--model", model, "--out", "r.jsonl",
                               "--overwrite", "--markov-order", "1", *arguments], cwd=self.folder, capture_output=True,
                              text=True)

    def expect_run(self, *arguments):
        found = self.modelbench(*arguments)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)

    def save(self, weights, name="gpt2.safetensors"):
        save_file({key: np.ascontiguousarray(t) for key, t in weights.items()}, self.folder / name)

    def test_logits_are_a_numpy_gpt2s(self):
        for dtype, tolerance in (("float64", 1e-11), ("float32", 2e-5)):
            weights = random_weights(dtype)
            self.save(weights)
            for name, shape in SHAPES.items():
                with self.subTest(shape=name, dtype=dtype):
                    self.expect_run("--check-only", "--dtype", dtype, "--weights", "gpt2.safetensors", "--dump", name,
                                    *shape)
                    folder = self.folder / name / shape[-1]
                    batches = json.loads((folder / "manifest.json").read_text())["micro_batches"]
                    for m in range(batches):
                        tokens = dumped(folder, f"micro-batch-{m}.tokens").reshape(-1, SEQ)
                        self.assertGreater(len(np.unique(tokens)), 8)
                        logits = dumped(folder, f"micro-batch-{m}.logits").reshape(*tokens.shape, VOCABULARY)
                        expected = gpt2(weights, tokens)
                        worst = np.abs(logits - expected).max() / np.abs(expected).max()
                        self.assertLess(worst, tolerance)
                        self.assertGreater(np.abs(expected).max(), 1, "all would be near")

    def test_what_is_written_is_what_was_read(self):
        for name, shape in SHAPES.items():
            with self.subTest(shape=name):
                weights = random_weights("float32")
                self.save(weights)
                self.expect_run("--check-only", "--weights", "gpt2.safetensors", "--save-weights", "back", *shape)
                back = load_file(self.folder / "back")
                self.assertEqual(back.keys(), weights.keys())
                for tensor, value in back.items():
                    np.testing.assert_array_equal(value, weights[tensor], tensor)
                self.assertFalse((self.folder / "back.parts").exists())

    def test_training_begins_there_and_ends_elsewhere(self):
        """A step of SGD without momentum: weights less the rate times the gradient that the dump of that step has; all
        at one rate, which falls over the steps from the one that is asked for."""
        weights = random_weights("float64")
        self.save(weights)
        once = ["--dtype", "float64", "--weights", "gpt2.safetensors", *SHAPES["sharded"]]
        self.expect_run("--check-only", "--dump", "dump", *once)
        self.expect_run("--steps", "1", "--optimizer", "sgd", "--learning-rate", "0.5", "--clip-norm", "0",
                        "--held-out", "0", "--save-weights", "stepped", *once)
        stepped, folder = load_file(self.folder / "stepped"), self.folder / "dump/tutel"
        gradient = {"wte.weight": dumped(folder, "embedding.gradient")}
        for layer in range(LAYERS):
            parts = [dumped(folder, f"layer-{layer}.w{part}.gradient") for part in "qkv"]
            gradient[f"h.{layer}.attn.c_attn.weight"] = np.concatenate(parts, axis=1)
            gradient[f"h.{layer}.mlp.c_fc.bias"] = dumped(folder, f"layer-{layer}.b1.gradient").ravel()
        slope = gradient["wte.weight"]
        rate = ((weights["wte.weight"] - stepped["wte.weight"]) * slope).sum() / (slope**2).sum()
        self.assertTrue(0.05 - 1e-12 <= rate <= 0.5 + 1e-12, rate)
        for name, slope in gradient.items():
            self.assertGreater(np.abs(slope).max(), 0, name)
            np.testing.assert_allclose(stepped[name], weights[name] - rate * slope, rtol=0, atol=1e-12, err_msg=name)

    def test_published_names_and_what_else_lies_beside_them(self):
        weights = random_weights("float64", 2 * SEQ)  # later places are not read
        others = {f"transformer.{name}": t for name, t in weights.items()}
        others |= {"lm_head.weight": weights["wte.weight"], "transformer.h.0.attn.bias": np.tri(4, dtype="float32")}
        self.save(others)
        self.expect_run("--check-only", "--dtype", "float64", "--weights", "gpt2.safetensors", "--dump", "d",
                        *SHAPES["one"])
        folder = self.folder / "d/fsmoe"
        tokens = dumped(folder, "micro-batch-0.tokens").reshape(-1, SEQ)
        logits = dumped(folder, "micro-batch-0.logits").reshape(*tokens.shape, VOCABULARY)
        np.testing.assert_allclose(logits, gpt2(weights, tokens), rtol=0, atol=1e-10)

    def refused(self, says, *arguments, model="model.toml", cluster="host"):
        found = self.modelbench("--steps", "1", *arguments, model=model, cluster=cluster)
        self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
        self.assertEqual(len(found.stderr.splitlines()), 1, found.stderr)
        for words in says:
            self.assertIn(words, found.stderr)

    def test_other_models_and_files_are_refused(self):
        weights = random_weights("float32")
        self.save(weights)
        given = ["--weights", "gpt2.safetensors"]
        for change, to, says in (("experts = 1", "experts = 4", "4 experts"), ("gpt-tanh", "gpt", "ffn gpt,"),
                                 ("bias = true", "", "no biases"), ("tied_embedding = true", "", "of its own"),
                                 ("bias = true", "bias = true\ncausal = false", "not causal"),
                                 ('"layernorm"', '"post-layernorm"', "norm post-layernorm")):
            (self.folder / "other.toml").write_text(MODEL.replace(change, to))
            self.refused(["--weights: found a model with ", says], *given, model="other.toml")
            self.refused(["--save-weights: found a model with "], "--save-weights", "w", model="other.toml")
        self.refused(["emulated cluster"], *given, cluster="testbed-b")
        self.refused(["found 2 schedules"], "--save-weights", "w", "--schedule", "tutel,fsmoe")
        self.refused(["none.safetensors"], "--weights", "none.safetensors")
        for name, other, says in (("h.1.mlp.c_fc.weight", None, "found no tensor h.1.mlp.c_fc.weight"),
                                  ("wpe.weight", weights["wpe.weight"][:4], f"wpe.weight: found shape (4, {WIDTH})"),
                                  ("ln_f.bias", weights["ln_f.bias"].astype("float16"), "ln_f.bias: found type F16"),
                                  (f"h.{LAYERS}.ln_1.weight", weights["ln_f.bias"], f"found a layer {LAYERS}")):
            changed = {**weights, name: other}
            self.save({n: t for n, t in changed.items() if t is not None}, "changed")
            self.refused(["changed: ", says], "--weights", "changed")


if __name__ == "__main__":
    unittest.main()
