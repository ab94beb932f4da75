"""Holds docs/adding.md to the files that it shows, word for word: every part, each under its file's name."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).parents[2]
SHOWN = re.compile(r"^`(tests/adding/[a-z_.]+)`:\n\n```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 60


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
