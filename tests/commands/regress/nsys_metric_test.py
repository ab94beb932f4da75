"""usage: nsys_metric_test.py PROGRAM

`ab` and `compare` by the ranges of Nsight Systems' exports: what a range took is what SQL over the same file says."""
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "exchange"))

from nsys_export import Export  # noqa: E402
from program import PROGRAM, ProgramTest, main  # noqa: E402

START = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);" \
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({}, '', '')"


def steps(scale=1.0, ranks=2, counts=None):
    """Ranks that run steps of a range, each with a range inside it and kernels on two streams."""
    export = Export()
    for rank in range(ranks):
        thread = export.thread(100 + rank, rank)
        for step in range((counts or [5] * ranks)[rank]):
            us = scale * (100 + 10 * rank + 3 * step)
            thread.range("iteration", [
                lambda: thread.range("forward", [lambda: thread.kernel("gemm", us)]),
                lambda: thread.kernel("ncclDevKernel_AllReduce()", us / 2, 20, gap_ns=int(5000 * scale))])
        thread.kernel("after", 1000)
        thread.range("idle")
    return export


def seconds_by_sql(path, name):
    """The median over occurrences of the slowest rank's span of kernels."""
    database = sqlite3.connect(path)
    spans = {}
    for device, start, first, last in database.execute(
            """SELECT k.deviceId, n.start, MIN(k.start), MAX(k."end") FROM NVTX_EVENTS n
               JOIN StringIds s ON s.id = n.textId
               JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                 ON r.globalTid = n.globalTid AND r.start BETWEEN n.start AND n."end"
               JOIN CUPTI_ACTIVITY_KIND_KERNEL k
                 ON k.correlationId = r.correlationId AND k.globalPid = r.globalTid / 16777216 * 16777216
               WHERE s.value = ? AND n.eventType = 59 GROUP BY 1, 2 ORDER BY 1, 2""", (name,)):
        spans.setdefault(device, []).append((last - first) * 1e-9)
    return statistics.median(map(max, zip(*spans.values())))


class NsysMetric(ProgramTest):
    def command(self, folder, export, line="Generated:\n    $PWD/run.nsys-rep\n    $PWD/run.sqlite", copies=True):
        """A program that leaves an export and says so, as nsys does."""
        (self.folder / folder).mkdir(exist_ok=True)
        (self.folder / folder / "made.sqlite").unlink(missing_ok=True)
        export.write(self.folder / folder / "made.sqlite")
        step = self.folder / folder / "step"
        step.write_text("#!/bin/sh\n" + ("cp made.sqlite run.sqlite\n" if copies else "") + f'echo "{line}"\n')
        step.chmod(0o755)
        return self.folder / folder / "made.sqlite"

    def ab(self, code, *flags, metric="nsys:iteration"):
        flags = ["--base", "one", "--head", "two", "--metric", metric, "--overwrite", *flags]
        done = subprocess.run([PROGRAM, "ab", *flags, "--json", "--quiet", "--", "./step"], cwd=self.folder,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertLessEqual(done.stderr.count("\n"), 1, done.stderr)
        return json.loads(done.stdout) if code < 2 else done.stderr

    def test_a_gate_by_a_range(self):
        files = [self.command("one", steps()), self.command("two", steps(1.25))]
        [case] = self.ab(1)["cases"]
        self.assertEqual(case["verdict"], "SLOW")
        for key, file in (("base_s", files[0]), ("head_s", files[1])):
            self.assertAlmostEqual(case[key], seconds_by_sql(file, "iteration"), delta=1e-12)
        self.command("two", steps(), line="run.sqlite")  # of its folder
        [case] = self.ab(0, metric="nsys:forward")["cases"]
        self.assertEqual(case["verdict"], "SAME")
        self.assertAlmostEqual(case["head_s"], seconds_by_sql(files[0], "forward"), delta=1e-12)

    def test_what_a_gate_refuses(self):
        self.command("two", steps())
        for said, export, more in (
                ("found no kernel that was launched inside the range 'iteration'", Export(), {}),
                ("found 3 and 5 occurrences of 'iteration', expected the same number on every rank",
                 steps(counts=[5, 3]), {}),
                ("found no file *.sqlite in the output", steps(), {"line": "done"}),
                ("found no readable file", steps(), {"line": "other.sqlite"})):
            if not export.rows:
                export.thread(1, 0).kernel("gemm", 5)
            self.command("one", export, **more)
            self.assertIn(said, self.ab(2))
        self.assertIn("expected nsys:RANGE", self.ab(2, metric="nsys:"))
        self.assertIn("--metric: found unit 'ms', expected none: metric nsys:iteration has a fixed unit",
                      self.ab(2, "--unit", "ms"))

    def test_an_old_export_is_no_measurement(self):
        self.command("two", steps())
        file = self.command("one", steps(), line="made.sqlite", copies=False)
        os.utime(file, (1e9, 1e9))
        self.assertIn("made.sqlite, which is older than the launch", self.ab(2))

    def test_compare(self):
        for side, scale in (("before", 1.0), ("after", 1.25)):
            (self.folder / side).mkdir()
            for launch in range(20):
                started = 1_700_000_000_000_000_000 + 2 * launch * 10 ** 9 + (10 ** 9 if side == "after" else 0)
                steps(scale).write(self.folder / side / f"{launch}.sqlite", change=START.format(started))
        one = [self.folder / side / "0.sqlite" for side in ("before", "after")]
        document = json.loads(self.text("compare", *one, "--metric", "nsys:iteration", "--json"))
        [case] = document["cases"]
        self.assertEqual((case["key"], case["verdict"]), ("nsys/iteration", "AMBG"))  # one launch each, no floor
        for key, file in zip(("base", "head"), one):
            self.assertAlmostEqual(case[key], seconds_by_sql(file, "iteration"), delta=1e-12)
        self.assertEqual(document["base"]["runs"][0]["started"], "2023-11-14T22:13:20.000000000Z")
        self.text("compare", one[0], one[0], "--metric", "nsys:forward")
        done = subprocess.run([PROGRAM, "compare", "before", "after", "--metric", "nsys:iteration", "--json"],
                              cwd=self.folder, capture_output=True)
        [case] = json.loads(done.stdout)["cases"]
        self.assertEqual((done.returncode, case["verdict"], case["pairs"]), (1, "SLOW", 20), done.stderr)
        self.assertIn("--metric: found 'number', expected nsys:RANGE",
                      self.refused("compare", *one, "--metric", "number"))
        self.assertIn("found no kernel that was launched inside the range 'idle'",
                      self.refused("compare", *one, "--metric", "nsys:idle"))
        (self.folder / "empty").mkdir()
        self.assertIn("empty: found no *.sqlite", self.refused("compare", "empty", one[0], "--metric", "nsys:x"))


if __name__ == "__main__":
    main()
