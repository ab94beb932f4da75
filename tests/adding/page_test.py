"""Holds docs/adding.md and README.md to the files that they show, word for word: each under its file's name."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
SHOWN = re.compile(r"^`(tests/adding/[a-z_.]+)`:\n\n```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 60
BLOCK = re.compile(r"^([^\n]*)\n\n```(cpp|cmake)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # what stands above, language
NAMED = re.compile(r"`([A-Za-z0-9_./]+)`:$")


class Readme(unittest.TestCase):
    text = (ROOT / "README.md").read_text()

    def test_shows_code_as_it_is(self):
        blocks = BLOCK.findall(self.text)
        self.assertEqual(len(blocks), len(re.findall(r"^```(?:cpp|cmake)$", self.text, re.MULTILINE)))
        self.assertGreaterEqual(len(blocks), 2)
        for above, _, code in blocks:
            named = NAMED.search(above)
            self.assertIsNotNone(named, f"a block that no file's name stands above: {above}")
            self.assertEqual(code, (ROOT / named[1]).read_text(), named[1])

    def test_names_all_that_a_schedule_needs(self):
        section = self.text.split("## Adding a schedule")[1].split("## ")[0]
        sources = [path for path in (ROOT / "moe").rglob("*") if path.suffix in (".h", ".cpp")]
        for constant, name in (("kTutelImproved", "tutel_improved.cpp"), ("kFsmoeNoIio", "fsmoe_no_iio.cpp")):
            needed = {path for path in sources if re.search(rf"\b{constant}\b", path.read_text())}
            needed |= {path for path in (ROOT / "moe").rglob("CMakeLists.txt") if name in path.read_text()}
            self.assertEqual({path.parent for path in needed}, {ROOT / "moe" / "schedule"})
            for path in needed:
                if path.name != name:
                    self.assertIn(f"`{path.name}`", section)


class Page(unittest.TestCase):
    def test_shows_every_part_as_it_is(self):
        shown = dict(SHOWN.findall((ROOT / "docs" / "adding.md").read_text()))
        files = {f"tests/adding/{path.name}": path.read_text() for path in (ROOT / "tests" / "adding").glob("*.cpp")}
        del files["tests/adding/adding_test.cpp"]
        self.assertEqual(sorted(shown), sorted(files))
        for name, text in files.items():
            self.assertEqual(shown[name], text, name)
            self.assertLess(text.count("\n"), MOST_LINES, name)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
