"""The clusters that others measured are those that configs/published/make_clusters.py makes of its figures."""
import csv
import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "configs" / "published"
SPEC = importlib.util.spec_from_file_location("make_clusters", PUBLISHED / "make_clusters.py")
MADE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MADE)


class PublishedClusters(unittest.TestCase):
    def test_are_what_the_script_makes(self):
        for name, text in MADE.clusters().items():
            kept = (ROOT / "configs" / "clusters" / f"{name}.toml").read_text(encoding="utf-8")
            self.assertEqual(kept, text, f"{name}: make it anew by python3 configs/published/make_clusters.py")

    def test_are_all_that_name_the_script(self):
        naming = {path.stem for path in (ROOT / "configs" / "clusters").glob("*.toml")
                  if "make_clusters.py" in path.read_text(encoding="utf-8")}
        self.assertEqual(naming, set(MADE.clusters()))

    def test_every_file_of_figures_says_its_source(self):
        for path in PUBLISHED.glob("*.csv"):
            lines = path.read_text(encoding="utf-8").splitlines()
            self.assertTrue(lines[0].startswith("# ") and "github.com" in "".join(lines[:3]), path)
            rows = list(csv.reader(line for line in lines if not line.startswith("#")))
            self.assertEqual({len(row) for row in rows}, {len(rows[0])}, path)

    def test_a_line_is_the_relative_least_squares(self):
        alpha, beta = MADE.Line([(1, 3), (2, 5), (10, 21)]).solved()
        self.assertAlmostEqual(alpha, 1)
        self.assertAlmostEqual(beta, 2)
        alpha, beta = MADE.Line([(1, 1), (2, 3)]).solved()  # alpha would be -1
        self.assertEqual(alpha, 0)
        self.assertAlmostEqual(beta, (5 / 3) / (13 / 9))

    def test_what_is_held_out_has_no_part_in_its_line(self):
        median, worst = MADE.held_out([(1, 2), (2, 3), (3, 4), (4, 10)])
        self.assertAlmostEqual(worst, 0.5)  # 5 where 10 was measured
        self.assertLess(median, worst)


unittest.main()
