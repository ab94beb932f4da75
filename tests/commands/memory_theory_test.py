"""`memory --framework` against the published counts of what frameworks keep: parameters by how their ranks hold them,
18 bytes each or 6 + 12 / d with the distributed optimizer (megatron/training/theoretical_memory_usage.py); activations
by Korthikanti et al. (arXiv:2205.05198), section 4, with sequence parallelism, scores that are recomputed and, as
`export` says, no dropout. Of experts the same tensors by the rows that they compute."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
HALF, FLOAT = 2, 4

GPT = dict(layers=48, h=1600, heads=25, kv=25, d=64, f=6400, experts=1, k=1, vocab=50257, gated=False, places=1024,
           seq=1024)
MIXTRAL = dict(layers=32, h=4096, heads=32, kv=8, d=128, f=14336, experts=8, k=2, vocab=32000, gated=True, seq=4096)
QWEN = dict(layers=48, h=2048, heads=32, kv=4, d=128, f=768, experts=128, k=8, vocab=151936, gated=True, seq=4096)
QWEN_LARGE = dict(QWEN, layers=96, h=4096, heads=64, f=1536)
DENSE_FIRST = dict(layers=16, dense=12, dense_f=8192, h=2048, heads=16, kv=8, d=128, f=1024, shared=2048, experts=16,
                   k=2, vocab=64000, gated=True, seq=2048)
FEW = dict(layers=3, dense=2, dense_f=8192, h=2048, heads=16, kv=16, d=128, f=1024, experts=8, k=2, vocab=50257,
           gated=False, places=1024, seq=1024)
MANY = dict(FEW, layers=7, dense=6)
SHAPES = (("few", FEW), ("many", MANY), ("gpt", GPT), ("mixtral", MIXTRAL), ("qwen", QWEN), ("qwen-large", QWEN_LARGE),
          ("dense-first", DENSE_FIRST))


def toml_of(name, m):
    """The model as a file."""
    lines = [f'schema = 1\nname = "{name}"\nsource = "made up"\nlayers = {m["layers"]}\nvocabulary = {m["vocab"]}\n'
             "tied_embedding = false"]
    if "dense" in m:
        lines.append(f'dense_hidden = {m["dense_f"]}\nfirst_dense = {m["dense"]}')
    lines.append(f'[layer]\nbatch = 1\nseq = {m["seq"]}\nmodel_dim = {m["h"]}\nhidden = {m["f"]}\n'
                 f'shared_hidden = {m.get("shared", 0)}\nheads = {m["heads"]}\nkv_heads = {m["kv"]}\n'
                 f'head_dim = {m["d"]}\nexperts = {m["experts"]}\ntop_k = {m["k"]}\ncapacity_factor = "none"\n'
                 f'ffn = "{"mixtral" if m["gated"] else "gpt"}"\ndtype = "bfloat16"\n'
                 f'rope_theta = {0 if "places" in m else 10000}')
    return "\n".join(lines) + "\n"


class Theory:
    """What a rank of stage `stage` holds."""

    def __init__(self, model, tp=1, pp=1, vp=1, ep=1, etp=1, gpus=1, b=1, m=1, stage=0, recompute="selective"):
        self.model, self.tp, self.pp, self.vp, self.ep, self.etp = model, tp, pp, vp, ep, etp
        self.dp, self.edp = gpus // (tp * pp), gpus // (ep * etp * pp)
        self.b, self.m, self.stage, self.recompute = b, m, stage, recompute
        chunk = model["layers"] // (pp * vp)
        mine = [layer for layer in range(model["layers"]) if layer // chunk % pp == stage]
        self.dense_layers = sum(layer < model.get("dense", 0) for layer in mine)
        self.moe_layers = len(mine) - self.dense_layers

    def parameters(self):
        """Those that DP ranks hold alike, sharded over TP or whole, and experts'."""
        m, layers = self.model, self.dense_layers + self.moe_layers
        gemms, norm = (3, 1) if m["gated"] else (2, 2)
        attention = m["h"] * m["d"] * 2 * (m["heads"] + m["kv"])
        sharded = layers * attention + self.moe_layers * gemms * m["h"] * m.get("shared", 0)
        sharded += self.dense_layers * gemms * m["h"] * m.get("dense_f", 0)
        whole = layers * 2 * norm * m["h"] + self.moe_layers * m["h"] * m["experts"]
        if self.stage == 0:
            sharded += (m["vocab"] + m.get("places", 0)) * m["h"]
        if self.stage == self.pp - 1:
            sharded += m["vocab"] * m["h"]
            whole += norm * m["h"]
        experts = self.moe_layers * m["experts"] * gemms * m["h"] * m["f"] / (self.ep * self.etp)
        return sharded / self.tp + whole, experts

    def states(self, whole_bytes, shared_bytes):
        """Bytes of a state of so many bytes a parameter, and of one that replicas share out."""
        dense, experts = self.parameters()
        return (dense * (whole_bytes + shared_bytes / self.dp) + experts * (whole_bytes + shared_bytes / self.edp))

    def layer(self, dense):
        """Activations of a layer for one micro-batch."""
        m = self.model
        tokens, t = self.b * m["seq"], self.tp
        own = tokens / t
        rows_of_h = 4 * own * m["h"]  # inputs and outputs of both norms
        heads = tokens / t * m["d"] * 2 * (m["heads"] + m["kv"])  # queries, keys, values and what they mix to
        inside = 3 if m["gated"] else 2  # widths between the two GEMMs
        elements = rows_of_h + heads
        if dense:
            return HALF * (elements + tokens * inside * m["dense_f"] / t)
        rows = own * m["k"] * self.etp
        elements += rows * (m["h"] + inside * m["f"] / self.etp) + tokens * inside * m.get("shared", 0) / t
        return HALF * elements

    def activations(self):
        m, p = self.model, self.pp
        one = self.moe_layers * self.layer(False) + (self.dense_layers * self.layer(True) if self.dense_layers else 0)
        passed = HALF * self.b * m["seq"] * m["h"] / self.tp
        if self.vp > 1:
            in_flight = (p * self.vp + p - 1 - 2 * self.stage) / self.vp
        else:
            in_flight = min(self.m, p - self.stage)
        if self.recompute == "full":
            total = in_flight * (self.moe_layers + self.dense_layers) * passed + self.layer(False) - passed
            total += self.layer(True) - passed if self.dense_layers else 0
        else:
            total = in_flight * one
        if self.stage == p - 1:
            total += FLOAT * self.b * m["seq"] * m["vocab"] / self.tp + passed
        return total


class MemoryTheory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name, model in SHAPES:
            pathlib.Path(cls.folder.name, name + ".toml").write_text(toml_of(name, model))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_memory(self, *words):
        return subprocess.run([PROGRAM, "memory", *map(str, words)], cwd=self.folder.name, capture_output=True,
                              text=True)

    def estimate(self, name, framework, tp=1, pp=1, vp=1, ep=1, etp=1, gpus=8, b=1, m=1, zero=None,
                 recompute="selective"):
        words = ["--model", f"./{name}.toml", "--cluster", "h100-8-nodes", "--nodes", max(2, gpus // 8), "--framework",
                 framework, "--mp", tp, "--pp", pp, "--ep", ep, "--esp", etp, "--batch", b, "--micro-batches", m,
                 "--recompute", recompute, "--json"]
        if gpus == 8:
            words[3:6] = ["h100-8", "--nodes", 1]
        if vp > 1:
            words += ["--virtual-stages", vp]
        if zero is not None:
            words += ["--zero", zero]
        done = self.run_memory(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["framework"], framework)
        return next(row for row in document["estimates"] if row["activations_model"] == "counted")

    def near(self, found, expected, within, what):
        self.assertLessEqual(abs(found / expected - 1), within, (what, found, expected))

    def test_megatrons_layouts(self):
        for name, layout in (("gpt", dict(pp=4, gpus=16, b=4, m=8)),
                             ("dense-first", dict(tp=2, pp=4, ep=4, gpus=32, m=8)),
                             ("mixtral", dict(tp=2, ep=4, gpus=16, m=4, zero=1)),
                             ("mixtral", dict(tp=2, pp=2, ep=8, etp=2, gpus=64, m=4, zero=1)),
                             ("qwen", dict(ep=8, gpus=64, m=4, b=2, zero=1, recompute="full")),
                             ("qwen-large", dict(tp=2, pp=8, vp=4, ep=32, gpus=256, m=16, zero=1)),
                             ("dense-first", dict(tp=4, pp=2, ep=8, gpus=64, m=4, zero=1, recompute="full"))):
            found = self.estimate(name, "megatron", **layout)
            zero = layout.pop("zero", 0)
            theory = Theory(dict(SHAPES)[name], stage=found["stage"], **layout)
            with self.subTest(name=name, **layout):
                self.near(found["weights_bytes"], theory.states(2, 0), 0.005, "weights")
                self.near(found["gradients_bytes"], theory.states(4, 0), 0.005, "gradients")
                self.near(found["optimizer_bytes"], theory.states(0, 12) if zero else theory.states(12, 0), 0.005,
                          "optimizer")
                self.near(found["activations_bytes"], theory.activations(), 0.05, "activations")

    def test_a_dense_layer_is_the_printed_formula(self):
        tokens, h, masks = 2 * FEW["seq"], FEW["h"], 2
        few, many = (self.estimate(name, "megatron", b=2)["activations_bytes"] for name in ("few", "many"))
        printed = tokens * h * (18 + 4 * FEW["dense_f"] / h)
        self.near((many - few) / (MANY["dense"] - FEW["dense"]) + masks * tokens * h, printed, 0.001, "activations")

    def test_states_of_the_others(self):
        layout = dict(tp=1, ep=8, gpus=64, m=2)
        for framework, zero, parts in (("deepspeed", 1, ((2, 0), (2, 0), (0, 12))),
                                       ("deepspeed", 2, ((2, 0), (0, 2), (0, 12))),
                                       ("torchtitan", None, ((0, 4), (0, 4), (0, 8))),
                                       ("torchtitan", 1, ((0, 4), (0, 4), (0, 8))),
                                       ("torchtitan", 0, ((4, 0), (4, 0), (8, 0))),
                                       ("moetune", 1, ((2, 0), (2, 0), (0, 12)))):
            found = self.estimate("qwen", framework, zero=zero, **layout)
            theory = Theory(QWEN, **layout)
            for key, part in zip(("weights", "gradients", "optimizer"), parts):
                self.near(found[key + "_bytes"], theory.states(*part), 0.005, (framework, key))

    def test_tune_counts_as_its_framework(self):
        model = ["--model", "qwen3-30b-a3b", "--layers", "8", "--cluster", "h100-8", "--mp", "1", "--ep", "8", "--zero",
                 "1", "--recompute", "selective", "--json"]
        needs = {}
        for framework in ("megatron", "torchtitan"):
            document = json.loads(self.run_memory(*model, "--framework", framework).stdout)
            [counted] = [e for e in document["estimates"] if e["activations_model"] == "counted"]
            done = subprocess.run([PROGRAM, "tune", "--no-verify", *model, "--framework", framework],
                                  cwd=self.folder.name, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            ranking = json.loads(done.stdout)["ranking"]
            needs[framework] = {row["memory_bytes"] for row in ranking if "memory_bytes" in row}
            self.assertEqual(needs[framework], {counted["total_bytes"]}, framework)
        self.assertNotEqual(needs["megatron"], needs["torchtitan"])

    def test_what_a_framework_refuses_is_said(self):
        done = self.run_memory("--model", "./gpt.toml", "--cluster", "h100-8", "--framework", "megatron", "--mp", 2)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("--framework megatron: Megatron-Core refuses 25 attention heads over TP 2", done.stderr)


if __name__ == "__main__":
    unittest.main()
