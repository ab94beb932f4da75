"""usage: beyond_test.py PROGRAM

What `wave` gains over the best other schedule (`reproduce beyond`) stays above floors, as geometric means of the cases,
and is never a loss."""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
MICRO_BATCHES, MICRO_BATCHES_OF_STAGES = (1, 2, 4, 8), (4, 8, 16)
FLOORS = {  # cluster -> memory -> by micro-batches
    "testbed-a": {"own": (1.03, 1.16, 1.27, 1.35), "two": (1.03, 1.34, 1.43, 1.50)},
    "testbed-b": {"own": (1.07, 1.17, 1.26, 1.33), "two": (1.07, 1.35, 1.415, 1.45)},
    "h100-deepep-2-nodes": {"own": (1.035, 1.11, 1.16, 1.19), "two": (1.035, 1.19, 1.21, 1.22)},
    "h100-deepep-4-nodes": {"own": (1.025, 1.13, 1.19, 1.22), "two": (1.025, 1.24, 1.27, 1.28)},
    "h100-deepep-8-nodes": {"own": (1.015, 1.085, 1.12, 1.14), "two": (1.015, 1.165, 1.175, 1.18)},
    "2 stages of h100-deepep-2-nodes": {"own": (1.09, 1.09, 1.09), "two": (1.13, 1.13, 1.13)},
    "2 stages of h100-deepep-4-nodes": {"own": (1.12, 1.14, 1.14), "two": (1.19, 1.21, 1.23)},
    "4 stages of h100-deepep-2-nodes": {"own": (1.20, 1.11, 1.09), "two": (1.20, 1.14, 1.10)},
    "4 stages of h100-deepep-4-nodes": {"own": (1.20, 1.115, 1.10), "two": (1.20, 1.16, 1.13)},
}


class Beyond(unittest.TestCase):
    def test_gains_stay_above_floors(self):
        with tempfile.TemporaryDirectory() as folder:
            out = subprocess.run([PROGRAM, "reproduce", "beyond", "--json"], cwd=folder, text=True,
                                 stdout=subprocess.PIPE, check=True).stdout
        gains, means = {}, {}
        for figure in json.loads(out)["figures"]:
            place = figure["cluster"], figure["memory"], int(figure["m"])
            if figure["comparison"] == "cases":
                self.assertGreaterEqual(figure["ours"], 1, figure)
                gains.setdefault(place, []).append(figure["ours"])
            else:
                means[place] = figure["ours"]
        self.assertEqual(gains.keys(), means.keys())
        for (cluster, memory, m), values in gains.items():
            mean = math.prod(values) ** (1 / len(values))
            self.assertAlmostEqual(mean, means[cluster, memory, m], 9)
            columns = MICRO_BATCHES_OF_STAGES if "stages" in cluster else MICRO_BATCHES
            floor = FLOORS[cluster][memory][columns.index(m)]
            print(f"{cluster} {memory} m {m}: {mean:.3f}, floor {floor}")
            self.assertGreaterEqual(mean, floor, (cluster, memory, m))


if __name__ == "__main__":
    unittest.main()
