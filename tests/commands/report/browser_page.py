"""A page of records in a headless Chromium, as the tests of its controls and figures open it."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, find_browser
from page_of import report

PROGRAM = os.path.abspath(sys.argv[1])
PROGRAM_OF_BROWSER = find_browser()
CHANGE = """(() => {{ const element = document.getElementById({0!r}); element.value = {1!r};
element.dispatchEvent(new Event({2!r}, {{bubbles: true}})); }})()"""


class Page(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.browser = Browser(PROGRAM_OF_BROWSER)
        self.addCleanup(self.browser.close)
        self.browser.look(1280, 900, "light")

    def tearDown(self):
        self.assertEqual(self.browser.faults, [])

    def opened(self, *words):
        ran = report(PROGRAM, self.folder, *words)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.browser.open(self.folder / "page.html")

    def moetune(self, *words):
        """Runs the program in the folder; returns what it prints."""
        ran = subprocess.run([PROGRAM, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def text(self, name):
        return self.browser.value(f"document.getElementById({name!r}).textContent")

    def drawn(self, name):
        return self.browser.value(f"document.getElementById({name!r}).innerHTML")

    def change(self, name, value, event="change"):
        self.browser.value(CHANGE.format(name, str(value), event))

    def shown_sections(self):
        return self.browser.value("[...document.querySelectorAll('main > section')].filter((one) => !one.hidden)"
                                  ".map((one) => one.id)")


def main():
    if PROGRAM_OF_BROWSER is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
