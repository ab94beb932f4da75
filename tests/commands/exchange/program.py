"""The program under test, in a folder of its own, and records made up for it."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[3]
DATA = pathlib.Path(__file__).parent / "data"
PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
SIZES = [2 ** n for n in range(16, 27)]  # of collectives, in bytes

LAYER = {"cluster": "testbed-b", "layer": "a", "batch": 4, "seq": 1024, "model_dim": 2048, "hidden": 8192, "heads": 16,
         "kv_heads": 16, "experts": 8, "top_k": 2, "capacity_factor": 1.2, "ffn": "gpt", "dtype": "float32",
         "gate": "gshard", "order": "tutel", "dispatcher": "alltoall", "hook": "none", "norm": "layernorm",
         "residual": "yes", "aux_loss": 0.0, "z_loss": 0.0, "capacity_rounding": "ragged", "nodes": 8,
         "ranks_per_node": 4, "dp": 8, "mp": 4, "ep": 8, "esp": 4, "edp": 1, "pp": 1, "placement": "esp-inside"}


def header(started="2025-01-31T12:00:00Z", commit="c0ffee"):
    return {"kind": "run", "schema": 2, "measurement": 1, "started": started, "argv": ["made up"],
            "config_digest": "0", "version": "0.1.0", "git": {"commit": commit, "dirty": False}, "compiler": "",
            "libraries": {}, "machine": {"cores": 2}, "conditions": {"load1": 0.5, "mhz": 2600.0}, "environment": {}}


def measured(schedule, degrees, total_s, samples=(), status="ok", **changed):
    """A layer's case, as layerbench writes it."""
    parameters = {**LAYER, **changed}
    case = {"kind": "case", "key": f"run/{parameters['layer']}/{schedule}", "status": status, "parameters": parameters,
            "schedule": schedule, "degree_forward": degrees[0], "degree_backward": degrees[1], "backend": "local",
            "emulated": True, "dilation": 10.0, "samples": {}, "summary": {}, "prediction": {"gar_in_moe_bytes": 0}}
    if status != "ok":
        return {**case, "reason": "made up"}
    case["summary"] = {"total_s": total_s}
    if samples:
        case["samples"] = {"total_s": [[s, s / 2] for s in samples]}
    return case


def records(path, *cases, **of_header):
    lines = [header(**of_header), *cases, {"kind": "end", "ended": "2025-01-31T12:01:00Z"}]
    pathlib.Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def cases_of(path):
    """The cases of records, by key."""
    lines = map(json.loads, pathlib.Path(path).read_text().splitlines())
    return {line["key"]: line for line in lines if line["kind"] == "case"}


def seconds(alpha, beta, size):
    return alpha + beta * size


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def path(self, name, text=None):
        path = self.folder / name
        if text is not None:
            path.write_text(text)
        return str(path)

    def path_text(self, name):
        return (self.folder / name).read_text()

    def run_program(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True,
                              stdin=subprocess.DEVNULL)

    def call(self, *words, code=0):
        done = self.run_program(*words)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stderr.decode()}")
        if code:
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr.decode())
        return done

    def text(self, *words):
        return self.call(*words).stdout.decode()

    def said(self, *words):
        return self.call(*words).stderr.decode()

    def refused(self, *words):
        return self.call(*words, "--quiet", code=2).stderr.decode()

    def fitted(self, path):
        """The rows that `fit` makes of records, by name."""
        document = json.loads(self.text("fit", "--records", path, "--out", self.path("fitted.toml"), "--json"))
        return {row["op"]: row for row in document["rows"]}


def main():
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
