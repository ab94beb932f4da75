"""usage: compare_random_test.py PROGRAM

Ratios, verdicts, geometric means and exit codes of `compare` over random records, worked out here anew."""
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[1])
RUN = {"kind": "run", "schema": 2, "started": "2025-01-01T00:00:00Z", "argv": [], "config_digest": "0", "git": {},
       "compiler": "", "libraries": {}, "environment": {},
       "machine": {"cpu": "c", "cores": 4, "memory_bytes": 1 << 34, "architecture": "a"}}
SCHEDULES, OPS = ("fsmoe", "tutel", "lina"), ("alltoall", "gemm")


def random_case(draw, number):
    ranks, iterations = draw.randint(1, 5), draw.randint(1, 6)
    seconds = 10 ** draw.uniform(-5, 1)
    samples = [[seconds * draw.uniform(0.5, 1.5) for _ in range(ranks)] for _ in range(iterations)]
    case = {"kind": "case", "status": "ok", "parameters": {"size": number % 4}, "backend": "local", "emulated": False,
            "dilation": 1, "samples": {}, "summary": {}, "prediction": {}}
    if draw.random() < 0.5:
        schedule = draw.choice(SCHEDULES)
        case |= {"key": f"run/{number}/{schedule}", "schedule": schedule, "degree_forward": 1, "degree_backward": 1}
        case["samples"] = {"forward_s": [[1e-9] * ranks] * iterations, "total_s": samples}
        case["summary"] = {"peak_bytes": draw.randint(1 << 20, 1 << 30)}
    else:
        op = draw.choice(OPS)
        case |= {"key": f"op/{op}/{number}", "samples": {"seconds": samples}}
        case["parameters"]["op"] = op
    return case


def changed(case, draw):
    """The same case measured again: somewhat, or much, slower or faster."""
    again = json.loads(json.dumps(case))
    factor = math.exp(draw.gauss(0, 0.1))
    for name in again["samples"]:
        again["samples"][name] = [[factor * draw.uniform(0.99, 1.01) * s for s in ranks]
                                  for ranks in again["samples"][name]]
    if "peak_bytes" in again["summary"]:
        again["summary"]["peak_bytes"] = int(again["summary"]["peak_bytes"] * draw.choice((1, 1, 1.005, 1.02, 0.9)))
    return again


def seconds_of(case):
    samples = case["samples"].get("total_s", case["samples"].get("seconds"))
    return statistics.median(max(ranks) for ranks in samples)


def expected_rows(base, head, floor):
    """(key, metric) -> (group, ratio, verdict)"""
    rows = {}
    for key in base.keys() & head.keys():
        a, b = base[key], head[key]
        group = key.split("/")[0] + " " + (a.get("schedule") or a["parameters"]["op"])
        ratio = seconds_of(b) / seconds_of(a)
        limit = max(math.log(1.03), math.log1p(floor or 0))
        beyond = "AMBG" if floor is None else "SLOW" if ratio > 1 else "FAST"
        rows[key, "time"] = group, ratio, beyond if abs(math.log(ratio)) > limit else "SAME"
        if "peak_bytes" in a["summary"]:
            ratio = b["summary"]["peak_bytes"] / a["summary"]["peak_bytes"]
            rows[key, "memory"] = group, ratio, "SLOW" if ratio > 1.01 else "FAST" if 1 / ratio > 1.01 else "SAME"
    return rows


class Random(unittest.TestCase):
    def write(self, name, cases):
        with open(os.path.join(self.folder, name), "w") as file:
            for line in [RUN, *cases, {"kind": "end", "ended": "2025-01-01T00:00:00Z"}]:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def check(self, draw, floor):
        cases = [random_case(draw, number) for number in range(draw.randint(2, 30))]
        base = {case["key"]: case for case in cases if draw.random() < 0.9}
        head = {case["key"]: changed(case, draw) for case in cases if draw.random() < 0.9}
        self.write("base.jsonl", base.values())
        self.write("head.jsonl", head.values())
        words = [PROGRAM, "compare", "base.jsonl", "head.jsonl", "--json"]
        if floor is not None:
            self.write("floor.jsonl", [{
                "kind": "case", "key": "self-test/floor", "status": "ok", "parameters": {"fingerprint": ""},
                "backend": "none", "emulated": False, "dilation": 1, "samples": {}, "prediction": {},
                "summary": {"between_sessions": floor, "within_session": 0.001}}])
            words += ["--floor", "floor.jsonl"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        rows, document = expected_rows(base, head, floor), json.loads(done.stdout)
        self.assertEqual(done.returncode, 2 if not rows else int("SLOW" in (v for _, _, v in rows.values())), done)
        self.assertEqual({(c["key"], c["metric"]) for c in document["cases"]}, rows.keys())
        for case in document["cases"]:
            group, ratio, verdict = rows[case["key"], case["metric"]]
            self.assertEqual((case["group"], case["verdict"]), (group, verdict))
            self.assertAlmostEqual(case["ratio"] / ratio, 1, delta=1e-12)
        ratios = [case["ratio"] for case in document["cases"]]
        self.assertEqual(ratios, sorted(ratios, reverse=True))
        means = {}
        for (_, metric), (group, ratio, _) in rows.items():
            means.setdefault((group, metric), []).append(ratio)
        self.assertEqual({(g["group"], g["metric"]): g["cases"] for g in document["groups"]},
                         {name: len(ratios) for name, ratios in means.items()})
        for group in document["groups"]:
            expected = statistics.geometric_mean(means[group["group"], group["metric"]])
            self.assertAlmostEqual(group["ratio"] / expected, 1, delta=1e-12)
        self.assertEqual(document["only_in_base"], sorted(base.keys() - head.keys()))
        self.assertEqual(document["only_in_head"], sorted(head.keys() - base.keys()))
        return len(rows)

    def test_records(self):
        compared = 0
        with tempfile.TemporaryDirectory() as self.folder:
            for seed in range(60):
                with self.subTest(seed=seed):
                    compared += self.check(random.Random(seed), (None, 0.0, 0.02, 0.1)[seed % 4])
        self.assertGreater(compared, 500)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
