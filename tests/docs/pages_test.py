"""Rules that hold for every page: each block is something that a test knows, each path, link and heading is there."""
import csv
import io
import json
import pathlib
import re
import sys
import tomllib
import unittest

from pages import PLACEHOLDER, ROOT, WRITTEN_BY_CODE, pages

TOP = ("moe", "commands", "tuner", "microbench", "layerbench", "modelbench", "configs", "docs", "plots", "python",
       "tests", "cmake", "examples", ".ci")
PATH = re.compile(r"(?:" + "|".join(map(re.escape, TOP)) + r")/[\w.+/*-]*|[A-Z]\w+\.(?:md|txt|cff|json)")
ROW = re.compile(r"(?://|#) (?:(?:(k\w+)|(\w+)\(\)|\w+) in )?([\w/]+\.(?:cpp|h|txt))")
MOST_LINES = {"README.md": 150, "docs/adding.md": 420, "docs/architecture.md": 225, "docs/tuning.md": 270,
              "docs/schedules.md": 350, "docs/formats.md": 395, "docs/metrics.md": 460, "docs/ci.md": 240,
              "docs/exchange.md": 225, "CHANGELOG.md": 150, "results/README.md": 215}
USUAL_LINES = 200
DRAWN = re.compile(r"<!-- drawn: .*?^```$", re.MULTILINE | re.DOTALL)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def shown_of(path):
    """What pages show of a source: all of it, of a file of schedules the first one."""
    text = path.read_text()
    if path.parent.name != "schedule":
        return text
    return text[:text.index("};\n") + 3] + "\n}  // namespace moe\n"


class Pages(unittest.TestCase):
    def test_are_short(self):
        for page in pages():
            if page.path.startswith(WRITTEN_BY_CODE):
                continue
            text = DRAWN.sub("", page.text)  # a schedule that is added brings its picture
            self.assertLessEqual(text.count("\n"), MOST_LINES.get(page.path, USUAL_LINES), page.path)

    def test_have_only_blocks_that_something_holds(self):
        """sh and python are run, cpp and cmake are files or rows of them, toml, csv and json are read, text is output
        or a picture. Lines that are code by their indent would be none of these."""
        for page in pages():
            self.assertEqual(len(re.findall("^```", page.text, re.MULTILINE)), 2 * len(page.blocks), page.path)
            self.assertNotRegex(page.prose, r"\n\n {4,}[^ *-]", f"{page.path}: code by its indent, expected a fence")
            for block in page.blocks:
                self.assertIn(block.language, ("sh", "python", "text", "cpp", "cmake", "toml", "csv", "json"), block)

    def test_show_code_as_it_is(self):
        shown = 0
        for page in pages():
            for block in page.blocks:
                if block.language in ("cpp", "cmake") and block.name:
                    self.assertEqual(block.text, shown_of(ROOT / block.name), block.name)
                    shown += 1
                elif block.language in ("cpp", "cmake"):
                    self.check_rows(block)
        self.assertGreater(shown, 7)

    def check_rows(self, block):
        """Lines to add to files that are named beside them."""
        for line in block.text.splitlines():
            row = ROW.search(line)
            self.assertIsNotNone(row, f"{block}: a line that names no file to stand in")
            files = [path.read_text() for path in (ROOT / "moe").rglob(row[3].rsplit("/", 1)[-1])
                     if path.as_posix().endswith(row[3])]
            self.assertTrue(any((row[1] or row[2] or "") in text for text in files), f"{block}: {line}")

    def test_show_data_that_can_be_read(self):
        for page in pages():
            for block in page.blocks:
                if block.language == "toml":
                    tomllib.loads(block.text)
                elif block.language == "json":
                    for line in block.text.splitlines():
                        json.loads(line)
                elif block.language == "csv":
                    self.assertGreater(len(list(csv.reader(io.StringIO(block.text)))), 1)

    def test_name_paths_that_exist(self):
        named = 0
        for page in pages():
            for span in page.spans():
                if not PATH.fullmatch(span):
                    continue
                pattern = PLACEHOLDER.sub("*", span) if "/" in span else span
                found = list(ROOT.glob(pattern)) if "*" in pattern else [ROOT / pattern]
                self.assertTrue(any(path.exists() for path in found), f"{page.path}: `{span}`")
                named += 1
        self.assertGreater(named, 50)

    def test_name_what_a_file_has(self):
        """`moe/shape/shape.h`: `LayerShape`, `complete`."""
        named = 0
        for page in pages():
            for path, names in re.findall(r"`([\w/]+\.(?:h|cpp))`: ((?:`\w+`(?:, )?)+)", page.prose):
                text = (ROOT / path).read_text()
                missing = [name for name in re.findall(r"\w+", names) if name not in text]
                self.assertEqual(missing, [], f"{page.path}: not in {path}")
                named += 1
        self.assertGreater(named, 3)

    def test_link_to_what_is_there(self):
        for page in pages():
            for target in re.findall(r"\]\(([^)#]*(?:#[^)]*)?)\)", page.prose):
                if "://" in target:
                    continue
                name, _, part = target.partition("#")
                path = (ROOT / page.path).parent / name if name else ROOT / page.path
                self.assertTrue(path.exists(), f"{page.path}: {target}")
                if part:
                    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                    self.assertIn(part, map(anchor, titles), f"{page.path}: {target}")

    def test_are_all_reached_from_the_first(self):
        readme = next(page for page in pages() if page.path == "README.md")
        reproduction = next(page for page in pages() if page.path == "docs/reproduction.md")
        for page in pages():
            if page.path.startswith(WRITTEN_BY_CODE):
                self.assertIn(f"({page.path.removeprefix('docs/')}", reproduction.text)
            elif page.path.startswith("docs/"):
                self.assertIn(f"({page.path}", readme.text)


class Version(unittest.TestCase):
    def test_is_one(self):
        version = re.search(r"VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text().split("project(")[1])[1]
        self.assertIn(f"\nversion: {version}\n", (ROOT / "CITATION.cff").read_text())
        self.assertRegex((ROOT / "CHANGELOG.md").read_text(), rf"\n## \[.*{re.escape(version)}")


class CodeTour(unittest.TestCase):
    """docs/architecture.md's code tour: each name stands in one of the files of its row."""

    def test_find_what_they_look_for(self):
        page = next(page for page in pages() if page.path == "docs/architecture.md")
        rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page.section("Code tour"), re.MULTILINE)[1:]
        self.assertGreaterEqual(len(rows), 12)
        for topic, files, names in rows:
            with self.subTest(topic=topic):
                opened = [ROOT / path for path in re.findall(r"`([^`]+)`", files)]
                self.assertLessEqual(len(opened), 3)
                text = "".join(path.read_text() for path in opened)
                looked_for = re.findall(r"`([^`]+)`", names)
                self.assertTrue(looked_for)
                self.assertEqual([name for name in looked_for if name not in text], [])


class Schedules(unittest.TestCase):
    """What docs/schedules.md says that a schedule needs is all that names one in the sources."""

    def test_need_what_the_page_says(self):
        section = next(page for page in pages() if page.path == "docs/schedules.md").section("Adding a schedule")
        sources = [path for path in (ROOT / "moe").rglob("*") if path.suffix in (".h", ".cpp")]
        for constant, name in (("kParmS2Aas", "parm.cpp"), ("kFsmoeNoIio", "fsmoe.cpp")):
            needed = {path for path in sources if re.search(rf"\b{constant}\b", path.read_text())}
            needed |= {path for path in (ROOT / "moe").rglob("CMakeLists.txt") if name in path.read_text()}
            self.assertEqual({path.parent for path in needed}, {ROOT / "moe" / "schedule"})
            for path in needed:
                if path.name != name:
                    self.assertIn(f"`{path.name}`", section)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
