"""usage: figures_test.py PROGRAM

Every figure of a page is its records'; names are text; bad input is one line."""
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

from page_of import GRID, LAYER, MODELS, OPERATIONS, PLAN, VERIFIED, cases_of, column, data_of, lines_of, report

PROGRAM = os.path.abspath(sys.argv[1])
MOST_BYTES = 3e6
SAME = 1e-8  # nine digits
NASTY = "</script><img src=x onerror=document.title='ha'>\"'&<!--"


class Page(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def made_of(self, *words):
        ran = report(PROGRAM, self.folder, *words)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return data_of(self.folder / "page.html")

    def run_page(self):
        """What the page's own scripts make of it (page_check.js); nothing without Node."""
        if (node := shutil.which("node")) is None:
            return None
        words = [node, pathlib.Path(__file__).parent / "page_check.js", self.folder / "page.html"]
        ran = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout)

    def rows_of(self, data):
        """(layer, schedule) -> row -> cell."""
        names = column(data["layers"], "layer")
        columns = {name: column(data["rows"], name) for name in data["rows"]["columns"]}
        rows = [{name: cells[i] for name, cells in columns.items()} for i in range(data["rows"]["rows"])]
        return {(names[row["layer"]], row["schedule"]): row for row in rows}

    def check_case(self, case, row):
        pairs = [("degree_forward", case.get("degree_forward", 0)), ("degree_backward", case.get("degree_backward", 0)),
                 ("status", case["status"]), ("bound_s", case.get("bound_s"))]
        for name in ("forward_s", "backward_s", "total_s"):
            pairs.append((f"predicted_{name}", case["prediction"].get(name)))
            pairs.append((f"measured_{name}", case["summary"].get(name)))
        for name, expected in pairs:
            found = row.get(name)
            if isinstance(expected, float):
                self.assertAlmostEqual(found / expected, 1, delta=SAME, msg=f"{case['key']}: {name}")
            else:
                self.assertEqual(found, expected, f"{case['key']}: {name}")


class Figures(Page):
    def test_are_those_of_the_whole_grid(self):
        data = self.made_of(GRID)
        size = (self.folder / "page.html").stat().st_size
        print(f"the page of the whole grid has {size} bytes")
        self.assertLess(size, MOST_BYTES)
        rows, compared = self.rows_of(data), 0
        for case in cases_of(GRID):
            if not case["key"].startswith("run/"):
                continue
            row = rows[case["parameters"]["layer"], case["schedule"]]
            self.check_case(case, row)
            slowest = [max(ranks) for ranks in case["samples"]["total_s"]]
            self.assertAlmostEqual(row["low_s"] / min(slowest), 1, delta=SAME)  # two passes: least and most
            self.assertAlmostEqual(row["high_s"] / max(slowest), 1, delta=SAME)
            compared += 1
        self.assertEqual(compared, 5832)
        self.assertEqual(compared, len(rows))
        self.assertGreaterEqual(len(data["replays"]["layers"]), 8)
        self.assertTrue(data["runs"][0]["emulated"])

    def test_are_those_of_all_schedules_of_the_whole_grid(self):
        """All that the page has is exact, and the page's own reader of tables finds the same."""
        tuned = subprocess.run([PROGRAM, *"tune --no-verify --schedule all --out all.jsonl".split()], cwd=self.folder,
                               capture_output=True, text=True)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        data = self.made_of("all.jsonl")
        size = (self.folder / "page.html").stat().st_size
        print(f"the page of all schedules of the whole grid has {size} bytes")
        self.assertLess(size, MOST_BYTES)
        rows, compared = self.rows_of(data), 0
        for case in cases_of(self.folder / "all.jsonl"):
            if case["key"].startswith("answer/"):
                continue
            self.check_case(case, rows[case["parameters"]["layer"], case["schedule"]])
            compared += 1
        self.assertEqual(compared, 1458 * 25)
        self.assertEqual(compared, len(rows))
        if page := self.run_page():
            self.assertEqual(page["data"], data)

    def test_of_replays_are_those_of_the_records(self):
        data = self.made_of(GRID)
        rows, names = self.rows_of(data), column(data["layers"], "layer")
        for layer in data["replays"]["layers"]:
            for schedule in layer["schedules"]:
                row = rows[names[layer["layer"]], schedule["schedule"]]
                for phase in ("forward", "backward"):
                    own = [plan for plan in schedule[phase] if plan["degree"] == schedule[f"degree_{phase}"]]
                    # Fitted to the same operations by a later program.
                    self.assertAlmostEqual(own[0]["seconds"] / row[f"predicted_{phase}_s"], 1, delta=1e-3)

    def test_are_those_of_plans_and_operations(self):
        data = self.made_of(PLAN, LAYER, OPERATIONS)
        rows = self.rows_of(data)
        cases = [case for file in (PLAN, LAYER) for case in cases_of(file)
                 if case["key"].startswith(("plan/", "simulate/"))]
        self.assertGreater(len(cases), 10)
        for case in cases:
            self.check_case(case, rows[case["parameters"]["layer"], case["schedule"]])
        measured = {case["key"]: case["summary"]["median_s"] for case in cases_of(OPERATIONS)
                    if case["key"].startswith("op/")}
        found = dict(zip(column(data["operations"], "key"), column(data["operations"], "median_s"), strict=True))
        self.assertGreater(len(found), 20)
        for key, seconds in found.items():
            self.assertAlmostEqual(seconds / measured[key], 1, delta=SAME, msg=key)
        self.assertEqual(len(data["timelines"]), sum(bool(case.get("timeline")) for case in cases))

    def test_of_models_are_those_of_their_documents(self):
        data = self.made_of(MODELS)
        with gzip.open(MODELS) as text:
            expected = [(model, schedule) for model in json.load(text) for schedule in model["schedules"]]
        self.assertEqual(len(data["models"]), len(expected))
        for found, (model, schedule) in zip(data["models"], expected, strict=True):
            self.assertEqual(found["parameters"]["model"], model["model"])
            for name, value in (("measured_s", schedule["measured"]), ("predicted_s", schedule["predicted"])):
                self.assertAlmostEqual(found[name] / value["total_s"], 1, delta=SAME)
            for loss, of_step in zip(found["loss"], schedule["loss"], strict=True):
                self.assertAlmostEqual(loss / of_step, 1, delta=SAME)

    def test_have_whiskers_at_the_quartiles(self):
        passes = [0.5, 0.1, 0.4, 0.2, 0.3]
        case = {"kind": "case", "key": "run/a/tutel", "status": "ok", "parameters": {"layer": "a", "cluster": "c"},
                "schedule": "tutel", "degree_forward": 1, "degree_backward": 1, "backend": "local", "emulated": False,
                "dilation": 1.0, "samples": {"total_s": [[0.01, second] for second in passes]},
                "summary": {"total_s": statistics.median(passes)}, "prediction": {}}
        self.write("five.jsonl", lines_of(LAYER)[0], case)
        row = self.rows_of(self.made_of("five.jsonl"))["a", "tutel"]
        self.assertEqual((row["low_s"], row["measured_total_s"], row["high_s"], row["passes"]), (0.2, 0.3, 0.4, 5))
        self.assertEqual((row["likely_low_s"], row["likely_high_s"]), (0.1, 0.5))  # five are too few for an interval

    def test_of_measured_tasks_are_their_records(self):
        columns = ["kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s", "predicted_start_s",
                   "predicted_end_s"]
        tasks = [["dispatch", "forward", "inter", 0, 1, 0.0, 0.5, 0.0, 0.25],
                 ["expert", "forward", "compute", 0, 2, 0.5, 0.75, 0.25, 0.75],
                 ["expert", "backward", "compute", 1, 2, 0.75, 1.0, 0.75, 1.5]]
        case = {"kind": "case", "key": "run/a/tutel", "status": "ok", "parameters": {"layer": "a", "cluster": "c"},
                "schedule": "tutel", "degree_forward": 1, "degree_backward": 2, "backend": "local", "emulated": False,
                "dilation": 1.0, "samples": {"total_s": [[0.01, 1.0]]}, "summary": {"total_s": 1.0}, "prediction": {},
                "measured_timeline": {"rank": 1, "columns": columns, "rows": tasks}}
        self.write("measured.jsonl", lines_of(LAYER)[0], case)
        [timeline] = self.made_of("measured.jsonl")["timelines"]
        self.assertEqual((timeline["row"], timeline["rank"]), (0, 1))
        for name, cells in zip(columns, zip(*tasks, strict=True), strict=True):
            self.assertEqual(column(timeline["tasks"], name), list(cells), name)
        if drawn := self.run_page():
            measured, simulated, difference = drawn["groups"]
            for group, start, end in ((measured, 5, 6), (simulated, 7, 8)):
                self.assertEqual([(task["start"], task["end"]) for task in group["tasks"]],
                                 [(task[start], task[end]) for task in tasks])
            self.assertEqual([group["title"] for group in (measured, simulated, difference)],
                             ["tutel, measured on rank 1", "tutel, simulated", "tutel, difference"])
            self.assertEqual([(task["start"], task["end"], task["lines"]) for task in difference["tasks"]],
                             [(0.25, 0.5, ["ends 250\u00a0ms later than simulated", "takes 250\u00a0ms more"]),
                              (0.75, 0.75, ["ends 0 later than simulated", "takes 250\u00a0ms less"]),
                              (1.0, 1.5, ["ends 500\u00a0ms earlier than simulated", "takes 500\u00a0ms less"])])
            self.assertEqual([task["critical"] for task in difference["tasks"]], [None, None, False])
            self.assertEqual(difference["told"], "measured ends 500\u00a0ms earlier")
            self.assertIn("Measured tasks are of one pass", drawn["source"])
        case["measured_timeline"] = {"rank": 1, "columns": columns[:-2], "rows": [task[:-2] for task in tasks]}
        self.write("alone.jsonl", lines_of(LAYER)[0], case)
        [timeline] = self.made_of("alone.jsonl")["timelines"]
        self.assertNotIn("predicted_end_s", timeline["tasks"]["columns"])
        if drawn := self.run_page():
            self.assertEqual([group["title"] for group in drawn["groups"]], ["tutel, measured on rank 1"])
        del case["measured_timeline"]
        self.write("none.jsonl", lines_of(LAYER)[0], case)
        self.assertEqual(self.made_of("none.jsonl")["timelines"], [])
        if drawn := self.run_page():
            self.assertIn("hold no measured tasks", drawn["source"])

    def test_of_timelines_say_which_they_are(self):
        """A replayed layer whose records hold measured tasks, and one that was planned alone."""
        lines = [line for line in lines_of(VERIFIED) if line["kind"] != "cases"]
        for line in lines:
            if line.get("key", "").startswith("run/"):
                forward, total = (line["prediction"][name] for name in ("forward_s", "total_s"))
                line["measured_timeline"] = {
                    "rank": 2, "columns": ["kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s",
                                           "predicted_start_s", "predicted_end_s"],
                    "rows": [["dispatch", "forward", "inter", 0, 1, 0.0, 2 * forward, 0.0, forward],
                             ["expert", "backward", "compute", 0, 1, 2 * forward, 2 * total, forward, total]]}
        self.write("measured.jsonl", *lines)
        data = self.made_of("measured.jsonl")
        if drawn := self.run_page():
            schedules = [one["schedule"] for one in data["replays"]["layers"][0]["schedules"]]
            self.assertGreater(len(schedules), 1)
            titles = [group["title"] for group in drawn["groups"]]
            self.assertEqual(len(titles), 3 * len(schedules))
            for i, schedule in enumerate(schedules):
                self.assertEqual(titles[3 * i], f"{schedule}, measured on rank 2")
                self.assertRegex(titles[3 * i + 1], f"^{schedule}, (r_f [0-9]+, r_b [0-9]+, )?simulated$")
                self.assertEqual(titles[3 * i + 2], f"{schedule}, difference")
            self.assertEqual(len(drawn["changed"]), len(schedules))
            self.assertTrue(all(title.endswith(", simulated") for title in drawn["changed"]), drawn["changed"])
        self.made_of(LAYER)
        if drawn := self.run_page():
            said = "Simulated: no run of this layer has a time. Replayed in this page"
            self.assertTrue(drawn["source"].startswith(said))
            self.assertTrue(all(group["title"].endswith(", simulated") for group in drawn["groups"]))

    def test_of_measured_tasks_are_of_as_many_layers_as_asked_for(self):
        tasks = {"rank": 0, "columns": ["kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s"],
                 "rows": [["expert", "forward", "compute", 0, 1, 0.0, 1.0]]}
        cases = [{"kind": "case", "key": f"run/{name}/tutel", "status": "ok", "backend": "local", "emulated": False,
                  "parameters": {"layer": name, "cluster": "c"}, "schedule": "tutel", "degree_forward": 1,
                  "degree_backward": 1, "dilation": 1.0, "samples": {"total_s": [[1.0]]}, "prediction": {},
                  "summary": {"total_s": 1.0}, "measured_timeline": tasks} for name in "abc"]
        self.write("three.jsonl", lines_of(LAYER)[0], *cases)
        self.assertEqual([one["row"] for one in self.made_of("three.jsonl", "--timelines", 2)["timelines"]], [0, 2])

    def write(self, name, *lines):
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


class Names(Page):
    def test_are_text(self):
        lines = lines_of(LAYER)
        for line in lines:
            if "parameters" in line:
                line["parameters"]["layer"] = NASTY
        (self.folder / "nasty.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        data = self.made_of("nasty.jsonl")
        self.assertEqual(set(column(data["layers"], "layer")), {NASTY})
        page = (self.folder / "page.html").read_text()
        self.assertNotIn("<img", page)
        self.assertEqual(len(re.findall("</script", page)), 2)


class BadInput(Page):
    def refuse(self, *words):
        ran = report(PROGRAM, self.folder, *words)
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        self.assertFalse((self.folder / "page.html").exists())
        return ran.stderr

    def test_is_one_line(self):
        self.assertIn("absent.jsonl: found no readable file", self.refuse("absent.jsonl"))
        self.assertIn("absent.gz: found no readable file", self.refuse("absent.gz"))
        (self.folder / "plain.gz").write_text("no gzip")
        self.assertIn("plain.gz:1: ", self.refuse("plain.gz"))
        (self.folder / "half.jsonl.gz").write_bytes(GRID.read_bytes()[:5000])
        self.assertIn("half.jsonl.gz: found a file that gzip cannot unpack", self.refuse("half.jsonl.gz"))
        (self.folder / "empty.jsonl").write_text(json.dumps(lines_of(LAYER)[0]) + "\n")
        self.assertIn("empty.jsonl: found no case", self.refuse("empty.jsonl"))
        (self.folder / "other.json").write_text('{"schedules": 3}')
        self.assertIn("other.json: found no document of modelbench --json", self.refuse("other.json"))
        (self.folder / "other.jsonl").write_text("{}\n")
        self.assertIn("other.jsonl:1: ", self.refuse("other.jsonl"))
        self.assertIn("nosuch", self.refuse(LAYER, "--cluster", "nosuch"))
        self.assertIn("RECORDS", self.refuse())

    def test_makes_the_folder_of_the_page(self):
        ran = report(PROGRAM, self.folder, LAYER, page="far/off/page.html")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue((self.folder / "far/off/page.html").exists())
        (self.folder / "file").write_text("")
        ran = report(PROGRAM, self.folder, LAYER, page="file/page.html")
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)

    def test_says_what_has_no_replay(self):
        lines = lines_of(LAYER)
        for line in lines:
            if "parameters" in line:
                line["parameters"]["cluster"] = "host"
        (self.folder / "host.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        data = self.made_of("host.jsonl")
        self.assertEqual(data["replays"]["layers"], [])
        self.assertIn("no replays", data["replays"]["notes"][0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
