"""The clusters that others measured are those that configs/published/make_clusters.py makes of its figures."""
import csv
import importlib.util
import math
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

    def test_deepep_between_nodes_is_as_fast_as_its_authors_measured(self):
        readme = {2: 62e9, 4: 60e9, 8: 51e9}  # B/s a GPU of combine, DeepEP at edbb1bc
        for nodes, rate in readme.items():
            sizes = {row["tokens"]: row["combine_s"] + row["combine_notify_s"] for row in MADE.table("deepep-h100")
                     if row["nodes"] == nodes}
            reached = nodes * (1 - math.comb(256 - 256 // nodes, 8) / math.comb(256, 8))  # nodes of a token, once each
            found = reached * 7168 * 2 * (max(sizes) - 8192) / (sizes[max(sizes)] - sizes[8192])
            if nodes < 8:
                self.assertAlmostEqual(found / rate, 1, delta=0.05, msg=nodes)
            else:
                self.assertLess(found, 0.55 * rate)  # which is why the README's is taken
        lines = MADE.deepep_row(8)
        beta = float(next(line for line in lines if line.startswith("beta")).split("=")[1])
        self.assertAlmostEqual(beta * 8 * 51e9 / 4, 1, delta=1e-9)  # a byte of 8 copies to 4 nodes

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
