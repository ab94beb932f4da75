"""usage: dump_test.py PROGRAM

`layerbench --dump`: check_dump.py agrees with layers of several schedules, gates, experts and element types, and sees
a gradient that was changed; what can't be written is one line."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
import check_dump  # noqa: E402 (may start this script anew under another Python, with these arguments)

sys.argv.pop(1)
CLUSTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "clusters", "testbed-b.toml")
SMALL = ["--nearest", "--batch", "1", "--seq", "64", "--model-dim", "512", "--heads", "8"]
LAYERS = {
    "drops": ["--schedule", "fsmoe,ds-moe", "--dtype", "float64", "--capacity-factor", "0.7", "--experts",
              "16"],
    "grouped": ["--schedule", "parm-s2", "--dtype", "float64", "--gate", "switch", "--ffn", "mixtral", "--kv-heads",
                "4", "--capacity-factor", "0.9", "--aux-loss", "0.5", "--z-loss", "0.1"],
    "losses": ["--schedule", "tutel", "--dtype", "float64", "--aux-loss", "2", "--z-loss", "0.3", "--no-residual",
               "--norm", "rmsnorm", "--experts", "32", "--workload", "zipf:1"],
    "shared": ["--schedule", "fsmoe,parm-s1,ds-moe-replicated,monta-o2", "--dtype", "float64", "--ffn", "mixtral",
               "--shared-hidden", "96"],
    "window": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--kv-heads", "4", "--rope-theta", "100",
               "--window", "5"],
    "rotary": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--kv-heads", "4", "--rope-theta", "100"],
    "wide heads": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--kv-heads", "4", "--head-dim", "24",
                   "--rope-theta", "100", "--bias"],
    "latent": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--q-lora-rank", "48", "--kv-lora-rank", "32",
               "--qk-nope-head-dim", "24", "--qk-rope-head-dim", "8", "--v-head-dim", "16", "--rope-theta", "100"],
    "latent stack": ["--schedule", "fsmoe,lina", "--dtype", "float64", "--layers", "3", "--micro-batches", "2",
                     "--kv-lora-rank", "32", "--qk-nope-head-dim", "24", "--qk-rope-head-dim", "8", "--v-head-dim",
                     "16"],
    "fp8": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--ffn", "mixtral-fp8", "--shared-hidden", "1024"],
    "single": ["--schedule", "monta-o2,tutel", "--degree-forward", "3", "--ffn", "mixtral"],
    "dropless": ["--schedule", "monta-o2,ds-moe-replicated", "--dtype", "float64", "--gate", "sigmoid",
                 "--capacity-factor", "none", "--experts", "16", "--top-k", "3"],
    "shared samples": ["--schedule", "fsmoe,parm-s2", "--dtype", "float64", "--cp", "2", "--kv-heads", "4", "--bias",
                       "--rope-theta", "100", "--experts", "16"],
    "stack": ["--schedule", "fsmoe,lina,parm-s2", "--dtype", "float64", "--layers", "3", "--micro-batches", "2"],
    "stages": ["--schedule", "fsmoe,tutel", "--dtype", "float64", "--layers", "3", "--micro-batches", "3", "--pp", "2",
               "--pipeline", "1f1b", "--aux-loss", "0.1"],
}


def layerbench(folder, *arguments):
    """Runs on testbed-b, as if its float32 rows were of the dtype asked for."""
    cluster = os.path.join(folder, "cluster.toml")
    with open(CLUSTER) as rows, open(cluster, "w") as file:
        text = rows.read()
        file.write(text.replace('"float32"', '"float64"') if "float64" in arguments else text)
    return subprocess.run([PROGRAM, "layerbench", "--cluster", cluster, *SMALL, "--check-only", "--overwrite", "--out",
                           os.path.join(folder, "r.jsonl"), *arguments], capture_output=True, text=True)


def checked(folder):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        check_dump.check(folder)
    return printed.getvalue()


class Dumps(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def dump(self, name):
        found = layerbench(self.folder, *LAYERS[name], "--dump", os.path.join(self.folder, name))
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        schedules = LAYERS[name][1].split(",")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, name))), sorted(schedules))
        return [os.path.join(self.folder, name, schedule) for schedule in schedules]

    def test_numpy_agrees(self):
        for name in LAYERS:
            for folder in self.dump(name):
                with self.subTest(folder):
                    printed = checked(folder)
                    print(printed, end="", file=sys.stderr)
                    if name in ("drops", "grouped"):
                        self.assertNotIn(" 0 of", printed)  # some pairs are dropped
                    if name == "dropless":
                        self.assertIn(" 0 of", printed)

    def test_a_changed_gradient_shows(self):
        folder = self.dump("drops")[0]
        file = os.path.join(folder, "rank-3.safetensors")
        with open(file, "rb") as source:
            data = bytearray(source.read())
        header = int.from_bytes(data[:8], "little")
        entry = check_dump.json.loads(data[8:8 + header])["w2.gradient"]
        at = 8 + header + entry["data_offsets"][0]
        data[at:at + 8] = check_dump.np.float64(1e-3).tobytes()
        with open(file, "wb") as target:
            target.write(data)
        with self.assertRaisesRegex(AssertionError, "w2"):
            checked(folder)

    def test_axes_of_extent_1_stay(self):
        folder = os.path.join(self.folder, "one")
        found = subprocess.run([PROGRAM, "layerbench", "--cluster", "host", "--check-only", "--schedule", "tutel",
                                "--experts", "1", "--top-k", "1", "--ep", "1", "--model-dim", "32", "--hidden", "64",
                                "--heads", "4", "--seq", "4", "--batch", "4", "--dtype", "float64", "--shared-hidden",
                                "8", "--bias", "--out", os.path.join(self.folder, "r.jsonl"), "--dump", folder],
                               capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        folder = os.path.join(folder, "tutel")
        checked(folder)
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            axes = check_dump.json.load(file)["ranks"][0]["tensors"]
        totals = {name: [total for _, _, total in place] for name, place in axes.items()}
        self.assertEqual(totals["gate"], [1, 32])
        self.assertEqual(totals["gate.gradient"], [1, 32])
        self.assertEqual(totals["wq"], [32, 32])
        self.assertEqual((totals["w1"], totals["b1"]), ([1, 32, 64], [1, 1, 64]))
        self.assertEqual((totals["shared_w1"], totals["shared_b1"]), ([32, 8], [8]))
        self.assertEqual((totals["norm1"], totals["bq"]), ([32], [32]))

    def test_a_folder_that_cannot_be_made(self):
        file = os.path.join(self.folder, "file")
        open(file, "w").close()
        found = layerbench(self.folder, *LAYERS["drops"], "--dump", file)
        self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
        line = found.stderr.strip().splitlines()[-1]
        self.assertIn("--dump", line)
        self.assertIn(file, line)


if __name__ == "__main__":
    unittest.main()
