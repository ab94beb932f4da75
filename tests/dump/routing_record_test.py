"""usage: routing_record_test.py PROGRAM

`--record-routing`: what layerbench and modelbench write is what their gates chose, as the dumped tensors say, and what
`simulate --serve` and workloads read."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
SMALL = ["--cluster", "testbed-b", "--nearest", "--batch", "1", "--seq", "64", "--model-dim", "512", "--heads", "8"]


def moetune(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True)


def lines_of(file):
    with open(file) as lines:
        return {(int(row["layer"]), int(row["token"])): [int(e) for e in row["experts"].split()]
                for row in csv.DictReader(lines)}


def dumped(folder):
    """The gates' choices by layer and token, from the tensors that --dump wrote."""
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    found = {}
    for rank in manifest["ranks"]:
        with open(os.path.join(folder, rank["file"]), "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:8 + size])
        for name, entry in tensors.items():
            if not name.endswith("routing.expert"):
                continue
            parts = name.split(".")
            layer = int(parts[0].removeprefix("layer-")) if parts[0].startswith("layer-") else 0
            micro_batch = int(parts[1].removeprefix("micro-batch-")) if parts[1].startswith("micro-batch-") else 0
            (first, count, total), (_, k, _) = rank["tensors"][name]
            begin, end = (8 + size + at for at in entry["data_offsets"])
            flat = [int.from_bytes(data[at:at + 4], "little", signed=True) for at in range(begin, end, 4)]
            for token in range(count):
                found[layer, micro_batch * total + first + token] = flat[token * k:(token + 1) * k]
    return found


class RecordedRouting(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def record(self, verb, *words):
        found = moetune(verb, *words, "--check-only", "--out", self.path("r.jsonl"), "--overwrite", "--dump",
                        self.path("dump"), "--record-routing", self.path("routing.csv"))
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return lines_of(self.path("routing.csv"))

    def test_a_layers_choices(self):
        recorded = self.record("layerbench", *SMALL, "--schedule", "fsmoe,tutel", "--experts", "16", "--top-k", "2")
        self.assertEqual(recorded, dumped(self.path("dump/fsmoe")))
        self.assertEqual({len(experts) for experts in recorded.values()}, {2})

    def test_a_stacks_choices_are_read_back(self):
        recorded = self.record("layerbench", *SMALL, "--schedule", "tutel", "--experts", "16", "--top-k", "1",
                               "--capacity-factor", "none", "--layers", "3", "--micro-batches", "2")
        self.assertEqual(recorded, dumped(self.path("dump/tutel")))
        tokens = 1 + max(token for _, token in recorded)
        self.assertEqual(len(recorded), 3 * tokens)
        experts = 1 + max(expert for chosen in recorded.values() for expert in chosen)
        served = moetune("simulate", "--serve", "--cluster", "a100-8", "--nodes", "1", "--dtype", "bfloat16",
                         "--experts", str(max(8, experts)), "--batch", "1", "--seq", str(tokens // 16),
                         "--path-length", "1", "--routing", self.path("routing.csv"), "--json")
        self.assertEqual(served.returncode, 0, served.stderr)
        document = json.loads(served.stdout)
        self.assertEqual((document["layers"], document["served_batches"]), (3, 1))
        half = [[0] * max(8, experts) for _ in range(3)]
        for (layer, token), chosen in recorded.items():
            if token >= tokens // 2:
                half[layer][chosen[0]] += 1
        most = sorted(max(counts) * len(counts) / (tokens // 2) for counts in half)
        self.assertAlmostEqual(document["most_over_mean_tokens"], most[1])

    def test_a_models_choices_are_a_workload(self):
        recorded = self.record("modelbench", "--cluster", "host", "--model", "tiny-mixtral", "--schedule", "tutel")
        self.assertEqual(recorded, dumped(self.path("dump/tutel")))
        again = self.record("modelbench", "--cluster", "host", "--model", "tiny-mixtral", "--schedule", "tutel")
        self.assertEqual(recorded, again)

    def test_a_recorded_layer_is_a_workload(self):
        layer = [*SMALL, "--schedule", "tutel", "--experts", "16", "--top-k", "2"]
        recorded = self.record("layerbench", *layer)
        os.rename(self.path("routing.csv"), self.path("before.csv"))
        again = self.record("layerbench", *layer, "--seed", "5", "--workload", "trace:" + self.path("before.csv"))
        self.assertEqual(recorded, again)

    def test_gates_without_choices_are_refused(self):
        found = moetune("layerbench", *SMALL, "--schedule", "tutel", "--gate", "expert-choice", "--check-only",
                        "--out", self.path("r.jsonl"), "--record-routing", self.path("routing.csv"))
        self.assertEqual(found.returncode, 2, found.stdout + found.stderr)
        self.assertIn("gate expert-choice does not choose each token's top k", found.stdout + found.stderr)


if __name__ == "__main__":
    unittest.main()
