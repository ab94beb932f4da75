"""usage: timeline_records_test.py PROGRAM

The records of `simulate --out`, against what --json prints of the same layer and of each degree by itself; and the
committed samples of plots/, against what the program writes today."""
import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
LAYER = ["--batch", "2", "--seq", "128", "--model-dim", "2048", "--hidden", "8192"]
SCHEDULES = "ds-moe,tutel,fsmoe,parm,lina-baseline,monta-o3,lina-partition"


def moetune(folder, *arguments):
    found = subprocess.run([PROGRAM, *arguments], cwd=folder, capture_output=True, text=True)
    return found.returncode, found.stdout, found.stderr


class TimelineRecords(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        code, out, err = moetune(cls.scratch.name, "simulate", *LAYER, "--schedule", SCHEDULES, "--json", "--out",
                                 "a.jsonl", "--sweep-degrees")
        assert code == 0, err
        cls.printed = {s["schedule"]: s for s in json.loads(out)["schedules"]}
        with open(os.path.join(cls.scratch.name, "a.jsonl")) as file:
            cls.lines = [json.loads(line) for line in file]
        cls.cases = {line["key"]: line for line in cls.lines if line["kind"] == "case"}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_is_one_run_with_its_end(self):
        self.assertEqual([self.lines[0]["kind"], self.lines[-1]["kind"]], ["run", "end"])
        self.assertIn("--sweep-degrees", self.lines[0]["argv"])
        self.assertEqual(len(self.cases), len(self.lines) - 2)

    def test_timelines_are_the_printed_ones(self):
        for name in SCHEDULES.split(","):
            record, printed = self.cases["simulate/" + name], self.printed[name]
            self.assertEqual(len(record["timeline"]), len(printed["tasks"]))
            for mine, theirs in zip(record["timeline"], printed["tasks"]):
                self.assertEqual(mine["kind"], theirs["name"])
                for key in ("phase", "layer", "chunk", "lane", "start_s", "end_s"):
                    self.assertEqual(mine[key], theirs[key], (name, mine, key))
                self.assertIn(mine["phase"], mine["name"])
                self.assertLess(mine["chunk"], mine["chunks"])
            for key in ("degree_forward", "degree_backward", "bound_s"):
                self.assertEqual(record[key], printed[key])
            for key in ("forward_s", "backward_s", "moe_forward_s", "moe_backward_s", "gar_in_moe_bytes"):
                self.assertEqual(record["prediction"][key], printed[key])
            for lane in printed["lanes"]:
                self.assertEqual(record["prediction"][lane["name"] + "_busy_s"], lane["busy_s"])
                busy = sum(t["end_s"] - t["start_s"] for t in record["timeline"] if t["lane"] == lane["name"])
                self.assertAlmostEqual(busy, lane["busy_s"], delta=1e-12)
            total = record["prediction"]["forward_s"] + record["prediction"]["backward_s"]
            self.assertAlmostEqual(max(t["end_s"] for t in record["timeline"]), total, delta=1e-12)

    def test_degrees_are_what_each_gives_by_itself(self):
        for name, degrees in (("tutel", (1, 2, 7)), ("fsmoe", (1, 3, 10))):
            for r in degrees:
                code, out, _ = moetune(self.scratch.name, "simulate", *LAYER, "--schedule", name, "--json",
                                       "--degree-forward", str(r), "--degree-backward", str(r))
                self.assertEqual(code, 0)
                record, printed = self.cases[f"degrees/{name}/{r}"], json.loads(out)
                for key in ("forward_s", "backward_s"):
                    self.assertEqual(record["prediction"][key], printed[key], (name, r))
                self.assertEqual((record["degree_forward"], record["degree_backward"]), (r, r))

    def test_degrees_go_as_far_as_the_search(self):
        rows = -(-24 * 2 * 128 // (10 * 4 * 8))  # ceil(k f B L / (N_MP E)), k f = 2.4
        for name, most in (("ds-moe", 1), ("parm", 1), ("tutel", rows), ("fsmoe", rows), ("lina-partition", rows)):
            found = sorted(int(key.split("/")[2]) for key in self.cases if key.startswith(f"degrees/{name}/"))
            self.assertEqual(found, list(range(1, min(most, 64) + 1)), name)

    def test_bounds_bound(self):
        for key, case in self.cases.items():
            if not key.startswith("degrees/"):
                continue
            p = case["prediction"]
            for phase in ("forward", "backward"):
                time, bound, free = (p[n] for n in (f"{phase}_s", f"degree_bound_{phase}_s", f"free_bound_{phase}_s"))
                self.assertLessEqual(free, bound * (1 + 1e-12), key)
                self.assertLessEqual(bound, time * (1 + 1e-12), key)
            self.assertAlmostEqual(p["free_bound_forward_s"] + p["free_bound_backward_s"], case["bound_s"], delta=1e-15)

    def test_the_sweep_needs_a_file(self):
        code, out, err = moetune(self.scratch.name, "simulate", "--sweep-degrees")
        self.assertEqual((code, out, err.count("\n")), (2, "", 1))
        self.assertIn("--out", err)


class Colours(unittest.TestCase):
    def test_each_schedule_has_its_own(self):
        code, out, err = moetune(HERE, "list", "--json")
        self.assertEqual(code, 0, err)
        listed = json.loads(out)
        names = [row["name"] for row in listed["schedules"] + listed["iteration_schedules"]]
        with open(os.path.join(HERE, "..", "..", "plots", "style.py")) as file:
            tree = ast.parse(file.read())
        table = next(ast.literal_eval(node.value) for node in tree.body
                     if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SCHEDULES")
        self.assertLessEqual(set(table), set(names))  # others get colours by their order
        self.assertEqual(len({colour for colour, _ in table.values()}), len(table))


class Samples(unittest.TestCase):
    def test_are_what_the_program_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("layer", "plan", "parm", "monta-fig13", "monta-fig14", "fsmoe-fig6", "fsmoe-fig7",
                         "fsmoe-fig8", "lina-training"):
                with open(os.path.join(HERE, "data", name + ".jsonl")) as file:
                    sample = [json.loads(line) for line in file]
                arguments = [a.replace("../", HERE + "/") for a in sample[0]["argv"][1:]]
                code, _, err = moetune(folder, *arguments)
                self.assertEqual(code, 0, err)
                with open(os.path.join(folder, name + ".jsonl")) as file:
                    today = [json.loads(line) for line in file]
                shapes = [[self.shape(line) for line in lines] for lines in (sample, today)]
                if "-" in name:  # a paper's table may grow
                    shapes = [{str(shape[2:]) for shape in of_file} for of_file in shapes]
                self.assertEqual(*shapes, f"{name}: tests/plots/samples.sh PROGRAM writes the samples anew")

    def shape(self, line):
        """Names without times: when prices change the samples need not."""
        names = {part: sorted(line.get(part, {})) for part in ("parameters", "summary", "prediction")}
        tasks = sorted({tuple(sorted(task)) for task in line.get("timeline", [])})
        return line["kind"], line.get("key"), sorted(line), names, tasks


if __name__ == "__main__":
    unittest.main(verbosity=1)
