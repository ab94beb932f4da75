"""usage: history_changes_test.py PROGRAM

`history` on records of many commits: changes that were put in are found, none where none is. Skipped without a Python
that has ruptures (./moetune history makes one)."""
import glob
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
PLOTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "plots")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
SKIPPED = 77  # as CTest is told


def python_with_ruptures():
    made = sorted(glob.glob(os.path.join(CACHE, "moetune", "ruptures-*", "bin", "python3")))
    for python in filter(None, [os.environ.get("MOETUNE_PYTHON"), sys.executable, "/usr/bin/python3", *made]):
        if subprocess.run([python, "-c", "import ruptures, matplotlib"], capture_output=True).returncode == 0:
            return python
    return None


PYTHON = python_with_ruptures()


def changes_of(many):
    """What the script finds in each of many series of values."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        point = {"started": "", "commit": "", "dirty": False, "cases": 1}
        json.dump({"least_runs": 8, "series": [{"machine": "m", "group": "g", "cases": 1, "points": [
            {**point, "value_s": value} for value in values]} for values in many]}, file)
        file.flush()
        done = subprocess.run([PYTHON, "-B", os.path.join(PLOTS, "history.py"), file.name], capture_output=True,
                              text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def null_series(draw, runs, noise=0.02):
    return [math.exp(draw.gauss(0, noise)) for _ in range(runs)]


def stepped(draw, at=40, factor=1.08):
    return [value * (factor if i >= at else 1) for i, value in enumerate(null_series(draw, 60))]


class Changes(unittest.TestCase):
    def test_a_step_is_found_where_it_is(self):
        for factor in (1.08, 1 / 1.08):
            for changes in changes_of([stepped(random.Random(seed), factor=factor) for seed in range(20)]):
                self.assertEqual(len(changes), 1, changes)
                self.assertLessEqual(abs(changes[0]["at"] - 40), 2)
                self.assertAlmostEqual(changes[0]["after_s"] / changes[0]["before_s"] / factor, 1, delta=0.02)

    def test_two_steps_are_two(self):
        many = [[v * (1.1 if 20 <= i < 40 else 1) for i, v in enumerate(null_series(random.Random(s), 60))]
                for s in range(10)]
        for changes in changes_of(many):
            self.assertEqual(len(changes), 2)
            for change, at in zip(changes, (20, 40)):
                self.assertLessEqual(abs(change["at"] - at), 2)

    def test_noise_has_none(self):
        self.assertEqual(changes_of([null_series(random.Random(seed), 60) for seed in range(20)]), [[]] * 20)

    def test_false_alarms_are_as_rare_as_the_script_says(self):
        for runs, most in ((8, 0.02), (12, 0.02), (20, 0.02), (60, 0.01), (200, 0.01)):
            found = changes_of([null_series(random.Random(seed), runs) for seed in range(500)])
            share = sum(map(bool, found)) / len(found)
            print(f"{runs} runs: {100 * share:.1f} % of null series have a change")
            self.assertLessEqual(share, most, runs)

    def test_outliers_are_none(self):
        draw = random.Random(1)
        many = [[v * (1.25 if draw.random() < 0.03 else 1) for v in null_series(draw, 60)] for _ in range(50)]
        self.assertLessEqual(sum(map(bool, changes_of(many))), 1)

    def test_what_does_not_vary_has_none_and_a_step_of_it_has_one(self):
        self.assertEqual(changes_of([[1.0] * 30, [1.0] * 5]), [[], []])
        (change,), = changes_of([[1.0] * 15 + [1.02] * 15])
        self.assertEqual(change, {"at": 15, "before_s": 1.0, "after_s": 1.02})


class Verb(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def write(self, name, number, cases, cores=4):
        os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
        with open(os.path.join(self.folder, name), "a") as file:
            lines = [{"kind": "run", "schema": 2, "started": f"2025-01-{1 + number // 24:02}T{number % 24:02}:00:00Z",
                      "argv": [], "config_digest": "0", "git": {"commit": f"{number:040}", "dirty": number == 41},
                      "compiler": "", "libraries": {}, "environment": {},
                      "machine": {"cpu": "c", "cores": cores, "memory_bytes": 1 << 34, "architecture": "a"}}]
            lines += [{"kind": "case", "key": f"run/{name}/fsmoe", "status": "ok", "parameters": {"layer": name},
                       "schedule": "fsmoe", "degree_forward": 1, "degree_backward": 1, "backend": "local",
                       "emulated": False, "dilation": 1, "samples": {"total_s": [[seconds]]}, "summary": {},
                       "prediction": {}} for name, seconds in cases.items()]
            for line in lines + [{"kind": "end", "ended": ""}]:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def history(self, *flags, code=0, python=PYTHON):
        done = subprocess.run([PROGRAM, "history", ".", *flags], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "MOETUNE_PYTHON": python})
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def sixty(self, seed=3):
        """60 commits, some in files of their own; B is measured from commit 50 on, and is ten times A."""
        draw = random.Random(seed)
        for number, value in enumerate(stepped(draw)):
            cases = {"A": value} | ({"B": 10 * value} if number >= 50 else {})
            self.write(f"{number // 7}/{number % 3}.jsonl", number, cases)

    def test_a_step_is_found_whatever_cases_come(self):
        self.sixty()
        series, = json.loads(self.history("--json").stdout)["series"]
        self.assertEqual((series["group"], series["cases"], len(series["points"])), ("run fsmoe", 2, 60))
        self.assertEqual([point["commit"] for point in series["points"]], [f"{i:040}" for i in range(60)])
        self.assertEqual([i for i, point in enumerate(series["points"]) if point["dirty"]], [41])
        change, = series["changes"]
        self.assertLessEqual(abs(int(change["commit"]) - 40), 2)
        text = self.history().stdout
        self.assertIn("run fsmoe", text)
        self.assertIn(change["commit"][:12], text)

    def test_each_case_may_be_a_series(self):
        self.sixty()
        found = {s["group"]: s for s in json.loads(self.history("--by", "layer", "--json").stdout)["series"]}
        self.assertEqual({name: len(s["points"]) for name, s in found.items()}, {"A": 60, "B": 10})
        self.assertEqual(len(found["A"]["changes"]), 1)
        self.assertEqual(found["B"]["changes"], [])

    def test_machines_are_apart(self):
        for number in range(20):
            self.write("all.jsonl", number, {"A": 1 + number % 2}, cores=4 + number % 2)
        found = json.loads(self.history("--json").stdout)["series"]
        self.assertEqual([[point["value_s"] for point in s["points"]] for s in found], [[1.0] * 10, [2.0] * 10])
        self.assertEqual(len({s["machine"] for s in found}), 2)

    def test_runs_that_no_case_joins_are_apart(self):
        for number in range(20):
            self.write("all.jsonl", number, {"A" if number < 10 else "B": 1.0 if number < 10 else 5.0})
        found = json.loads(self.history("--json").stdout)["series"]
        self.assertEqual([(len(s["points"]), s["changes"]) for s in found], [(10, []), (10, [])])

    def test_is_drawn(self):
        self.sixty()
        self.history("--plot", "a.svg")
        with open(os.path.join(self.folder, "a.svg")) as file:
            drawn = file.read()
        for text in ("run fsmoe", "run, by time", "Source:"):
            self.assertIn(text, drawn)
        self.assertIn("--out: found 'a.gif'", self.history("--plot", "a.gif", code=2).stderr)

    def test_without_ruptures_there_is_one_line(self):
        self.sixty()
        bare = os.path.join(self.folder, "python")
        with open(bare, "w") as file:
            file.write(f'#!/bin/sh\nexec {PYTHON} -c "import sys; sys.modules[\'ruptures\'] = None; import runpy; '
                       'sys.argv = sys.argv[2:]; sys.path.insert(0, sys.argv[0].rpartition(\'/\')[0]); '
                       'runpy.run_path(sys.argv[0], run_name=\'__main__\')" "$@"\n')
        os.chmod(bare, 0o755)
        for python in (bare, "/nosuch/python3"):
            done = self.history(code=SKIPPED, python=python)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done)
            self.assertIn(os.path.basename(python) if "nosuch" in python else "ruptures", done.stderr)


if __name__ == "__main__":
    if PYTHON is None:
        print("skipped: no Python has ruptures and matplotlib (./moetune history makes one)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
