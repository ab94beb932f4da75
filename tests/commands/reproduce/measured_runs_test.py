"""usage: measured_runs_test.py PROGRAM

`reproduce --measure` and `--records`: the column of what really ran, against the records themselves, read here."""
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
RESULTS = pathlib.Path(__file__).resolve().parents[3] / "results"
KIND = "emulated run"


def grid_lines():
    with gzip.open(RESULTS / "fsmoe-b-emulated.jsonl.gz", "rt") as file:
        return [line for line in file if '"kind":"case"' not in line or '"key":"run/' in line]


def runs_of(lines):
    """layer -> schedule -> record, of sound runs."""
    found = {}
    for line in map(json.loads, lines):
        if line["kind"] == "case" and line["status"] == "ok":
            found.setdefault(line["parameters"]["layer"], {})[line["schedule"]] = line
    return found


class Measured(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def reproduce(self, *arguments):
        return subprocess.run([PROGRAM, "reproduce", *arguments, "--out", "r.jsonl", "--overwrite"], cwd=self.folder,
                              capture_output=True, text=True)

    def figures(self, *arguments):
        """Figures of runs, by convention, and the others."""
        found = self.reproduce(*arguments, "--json")
        self.assertEqual(found.returncode, 0, found.stderr)
        document = json.loads(found.stdout)
        runs = [figure for figure in document["figures"] if KIND in figure["convention"]]
        return runs, [figure for figure in document["figures"] if figure not in runs], document

    def write(self, lines):
        (self.folder / "some.jsonl").write_text("".join(lines))
        return str(self.folder / "some.jsonl")


class Layers(Measured):
    @classmethod
    def setUpClass(cls):
        cls.lines = grid_lines()

    def expect_speedups(self, figures, runs, convention):
        self.assertEqual({(f["testbed"], f["convention"]) for f in figures}, {("testbed-b", convention)})
        self.assertEqual([f["schedule"] for f in figures], ["tutel-improved", "fsmoe-no-iio", "fsmoe"])
        for figure in figures:
            ratios = [of["tutel"]["summary"]["total_s"] / of[figure["schedule"]]["summary"]["total_s"]
                      for of in runs.values() if {"tutel", figure["schedule"]} <= set(of)]
            self.assertAlmostEqual(figure["ours"], statistics.fmean(ratios), delta=1e-9)

    def test_all_layers(self):
        runs = runs_of(self.lines)
        self.assertEqual(len(runs), 1458)
        figures, others, document = self.figures("fsmoe-table5", "--measure")
        self.expect_speedups(figures, runs, f"{KIND}, volumes x f")
        self.assertAlmostEqual(figures[-1]["ours"], 1.380, delta=5e-4)  # as results/README.md says
        self.assertEqual(figures[-1]["paper"], 1.22)
        said = document["conventions"][-1]
        self.assertIn(f"{KIND}: sound runs of fsmoe-b-emulated.jsonl.gz (./moetune tune --cluster testbed-b", said)
        plain, same, _ = self.figures("fsmoe-table5")
        self.assertEqual((plain, same), ([], others))

    def test_degrees_as_they_ran(self):
        figures, _, _ = self.figures("fsmoe-degrees", "--measure")
        self.assertEqual({f["schedule"]: (f["ours"], f["paper"]) for f in figures},
                         {"fsmoe-no-iio": (870, None), "fsmoe": (1032, 912)})
        for schedule, apart in (("fsmoe", 1032), ("fsmoe-no-iio", 870)):
            self.assertEqual(apart, sum(of[schedule]["degree_forward"] != of[schedule]["degree_backward"]
                                        for of in runs_of(self.lines).values()))

    def test_some_layers(self):
        """Of a file that is named: sound runs of the grid's layers alone."""
        kept = self.lines[:1] + self.lines[1:4 * 20 + 1]
        broken = json.loads(kept[2])
        broken |= {"status": "invalid", "reason": "made up", "summary": {"total_s": 1e9}}
        other = json.loads(kept[1])
        other["key"] = "run/some layer/" + other["schedule"]
        other["parameters"]["layer"], other["summary"]["total_s"] = "some layer", 1e9
        kept[2] = json.dumps(broken, separators=(",", ":")) + "\n"
        file = self.write([*kept, json.dumps(other, separators=(",", ":")) + "\n"])
        figures, _, document = self.figures("fsmoe-table5", "--records", file)
        self.expect_speedups(figures, runs_of(kept), f"{KIND}, volumes x f, 20 layers")
        self.assertIn("some.jsonl", document["conventions"][-1])

    def test_what_ran_on_other_machines_is_no_emulation(self):
        kept = [line.replace('"emulated":true', '"emulated":false') for line in self.lines[:9]]
        found = self.reproduce("fsmoe-table5", "--records", self.write(kept))
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("run, volumes x f, 2 layers", found.stdout)
        self.assertNotIn("no task ends before", found.stdout)


class Models(Measured):
    def test_figure_6(self):
        with gzip.open(RESULTS / "fsmoe-fig6-models.json.gz", "rt") as file:
            models = json.load(file)
        figures, others, _ = self.figures("fsmoe-fig6", "--measure")
        self.assertEqual(len(figures), 2 * 8)
        for figure in figures:
            part = "measured" if figure["convention"] == KIND else "predicted"
            if part == "predicted":
                self.assertEqual(figure["convention"], f"predicted of the {KIND}")
            speedups = []
            for model in models:
                seconds = {row["schedule"]: row[part]["total_s"] for row in model["schedules"]}
                speedups.append(seconds[figure["over"]] / seconds[figure["schedule"]])
            expected = {"mean": statistics.fmean, "least": min, "most": max}[figure["statistic"]](speedups)
            self.assertAlmostEqual(figure["ours"], expected, delta=1e-9)
            self.assertIsNotNone(figure["paper"])
        self.assertEqual(self.figures("fsmoe-fig6")[1], others)
        text = self.reproduce("fsmoe-fig6", "--measure").stdout
        self.assertIn("the same of the emulated run", text)
        self.assertIn("fsmoe-fig6-models.json.gz", text)

    def test_some_models_are_no_mean(self):
        with gzip.open(RESULTS / "fsmoe-fig6-models.json.gz", "rt") as file:
            models = json.load(file)
        file = self.folder / "two.json"
        file.write_text(json.dumps(models[:2]))
        figures, _, _ = self.figures("fsmoe-fig6", "--records", str(file))
        self.assertEqual({f["ours"] for f in figures}, {None})
        self.assertIn("mixtral-7b on testbed-a", self.reproduce("fsmoe-fig6", "--records", str(file)).stdout)


LEFT_OUT = {"attention", "mp_allreduce", "gradient"}


class Parm(Measured):
    """Table IV's column of what ran, from the tasks of each record."""

    @classmethod
    def setUpClass(cls):
        with gzip.open(RESULTS / "parm-b-emulated.jsonl.gz", "rt") as file:
            cls.lines = list(file)
        cls.runs = runs_of(cls.lines)

    @staticmethod
    def seconds(record, *phases):
        """The MoE part's seconds in the timeline's pass."""
        rows = [row for row in record["measured_timeline"]["rows"] if row[1] in phases]
        return max(row[6] for row in rows) - sum(row[6] - row[5] for row in rows if row[0] in LEFT_OUT)

    def speedup(self, runs, schedule):
        baseline, own = (self.seconds(runs[name], "forward", "backward") for name in ("ds-moe-replicated", schedule))
        return baseline / own

    def test_mean_speedups(self):
        self.assertEqual(len(self.runs), 179)
        figures, others, document = self.figures("parm-table4", "--measure")
        self.assertEqual(len(figures), 2 * 12 + 2 + 2)
        self.assertEqual(len(others) + len(figures), len(document["figures"]))
        for figure in figures:
            if "N_MP" not in figure:
                continue
            wanted = (int(figure["N_MP"]), int(figure["N_ESP"]))
            speedups = [self.speedup(runs, figure["schedule"]) for runs in self.runs.values()
                        if (runs["parm"]["parameters"]["mp"], runs["parm"]["parameters"]["esp"]) == wanted]
            self.assertAlmostEqual(figure["ours"], statistics.fmean(speedups), delta=1e-9)
        both = [runs for runs in self.runs.values() if runs["parm"]["parameters"]["layer"].startswith("P32-mp4-esp4-")]
        self.assertEqual(len(both), 66)
        mean = [figure for figure in figures if figure.get("what") == "mean"]
        expected = statistics.fmean(self.speedup(runs, "parm") for runs in both)
        self.assertAlmostEqual(mean[0]["ours"], expected, delta=1e-9)
        self.assertAlmostEqual(mean[0]["ours"], 5.17, delta=5e-3)  # as results/README.md says

    def choices(self, runs_by_layer, has_row):
        """Layers where parm's choice was the faster one forward, and how often it took S2."""
        right = second = 0
        for runs in runs_by_layer.values():
            parameters = runs["parm"]["parameters"]
            if (parameters["mp"] == parameters["esp"] == parameters["ranks_per_node"]) != has_row:
                continue
            took = any(row[0] == "exchange" for row in runs["parm"]["measured_timeline"]["rows"])
            s1, s2 = (self.seconds(runs[name], "forward") for name in ("parm-s1", "parm-s2"))
            right += (s2 <= s1) == took
            second += took
        return right, second

    def test_choices(self):
        self.assertEqual(self.choices(self.runs, True), (66, 66))
        self.assertEqual(self.choices(self.runs, False), (110, 113))
        with gzip.open(RESULTS / "parm-slow-emulated.jsonl.gz", "rt") as file:
            slow = runs_of(file)
        self.assertEqual(self.choices(slow, True), (22, 14))
        for layer, runs in slow.items():
            took_second = any(row[0] == "exchange" for row in runs["parm"]["measured_timeline"]["rows"])
            self.assertEqual(took_second, "-f1.2-" in layer, layer)
        found = self.reproduce("parm-table4", "--measure").stdout.replace("\n    ", " ")
        self.assertIn("on 66 of 66 layers (it took S2 on 66)", found)
        self.assertIn("on 110 of 113 layers (it took S2 on 113)", found)


class Refused(Measured):
    def expect(self, words, *arguments):
        found = self.reproduce(*arguments)
        self.assertEqual((found.returncode, found.stdout), (2, ""), (arguments, found.stderr))
        self.assertEqual(len(found.stderr.splitlines()), 1, found.stderr)
        self.assertIn(words, found.stderr)

    def test_what_has_no_runs(self):
        self.expect("found monta-fig13, expected a table that has runs: fsmoe-table5", "monta-fig13", "--measure")
        self.expect("found --all, expected a TABLE", "--all", "--measure")
        self.expect("found --audit, expected a TABLE", "--audit", "--records", "r.jsonl")
        self.expect("no.jsonl: ", "fsmoe-table5", "--records", "no.jsonl")

    def test_records_of_something_else(self):
        with gzip.open(RESULTS / "fsmoe-fig6-models.json.gz", "rb") as file:
            (self.folder / "models.json").write_bytes(file.read())
        self.expect("models.json: found no layer of fsmoe-a or fsmoe-b", "fsmoe-table5", "--records", "models.json")
        lines = grid_lines()[:5]
        self.expect("some.jsonl: found none of the figure's models", "fsmoe-fig6", "--records", self.write(lines))
        lines[2] = lines[2].replace('"emulated":true', '"emulated":false')
        self.expect("some.jsonl: found emulated runs and others", "fsmoe-table5", "--records", self.write(lines))
        lines[1:] = [line.replace('"status":"ok"', '"status":"invalid"') for line in lines[1:]]
        self.expect("some.jsonl: found no sound run", "fsmoe-table5", "--records", self.write(lines))


if __name__ == "__main__":
    unittest.main()
