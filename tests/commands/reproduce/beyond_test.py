"""What `wave` gains over the best other schedule, by docs/reproduction/beyond.md, is never a loss and stays above
floors, as geometric means of the cases. Another test compares that page with what `reproduce beyond` computes."""
import math
import pathlib
import re
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/reproduction/beyond.md"
ALLOWANCES = ("own", "two", "own, parts")
MICRO_BATCHES, MICRO_BATCHES_OF_STAGES = (1, 2, 4, 8), (4, 8, 16)
FLOORS = {  # cluster -> by ALLOWANCES -> by micro-batches
    "testbed-a": ((1.03, 1.16, 1.27, 1.35), (1.03, 1.34, 1.43, 1.50), (1.03, 1.16, 1.27, 1.35)),
    "testbed-b": ((1.07, 1.17, 1.26, 1.33), (1.07, 1.35, 1.415, 1.45), (1.07, 1.17, 1.26, 1.33)),
    "h100-deepep-2-nodes": ((1.035, 1.11, 1.16, 1.19), (1.035, 1.19, 1.21, 1.22), (1.11, 1.11, 1.16, 1.19)),
    "h100-deepep-4-nodes": ((1.025, 1.13, 1.19, 1.22), (1.025, 1.24, 1.27, 1.28), (1.12, 1.13, 1.19, 1.22)),
    "h100-deepep-8-nodes": ((1.015, 1.085, 1.12, 1.14), (1.015, 1.165, 1.175, 1.18), (1.06, 1.085, 1.12, 1.14)),
    "2 stages of h100-deepep-2-nodes": ((1.08, 1.08, 1.08), (1.12, 1.13, 1.13), (1.15, 1.12, 1.11)),
    "2 stages of h100-deepep-4-nodes": ((1.11, 1.12, 1.13), (1.19, 1.20, 1.22), (1.26, 1.24, 1.23)),
    "4 stages of h100-deepep-2-nodes": ((1.20, 1.10, 1.08), (1.20, 1.13, 1.10), (1.35, 1.23, 1.16)),
    "4 stages of h100-deepep-4-nodes": ((1.19, 1.10, 1.09), (1.19, 1.15, 1.12), (1.40, 1.30, 1.25)),
}


def rows_below(caption):
    """The rows of the table below a caption, without its head."""
    table = PAGE.read_text().split("\n" + caption, 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[2:]]


class Beyond(unittest.TestCase):
    def test_gains_stay_above_floors(self):
        means = {}
        for caption in ("one stage:", "several stages:"):
            for cluster, allowance, *values in rows_below(caption):
                means[cluster, allowance] = [float(value) for value in values]
        gains = {}
        for cluster, case, m, _, _, *values, _ in rows_below("one stage, each") + rows_below("several stages, each"):
            for allowance, value in zip(ALLOWANCES, values, strict=True):
                self.assertGreaterEqual(float(value), 1, (cluster, case, m, allowance))
                gains.setdefault((cluster, allowance), {}).setdefault(int(m), []).append(float(value))
        self.assertEqual({cluster for cluster, _ in gains}, set(FLOORS))
        for (cluster, allowance), by_m in gains.items():
            columns = MICRO_BATCHES_OF_STAGES if "stages" in cluster else MICRO_BATCHES
            self.assertEqual(tuple(by_m), columns)
            floors = FLOORS[cluster][ALLOWANCES.index(allowance)]
            for mean, floor, (m, values) in zip(means[cluster, allowance], floors, by_m.items(), strict=True):
                self.assertAlmostEqual(mean, math.prod(values) ** (1 / len(values)), delta=2e-3)
                self.assertGreaterEqual(mean, floor, (cluster, allowance, m))


if __name__ == "__main__":
    unittest.main()
