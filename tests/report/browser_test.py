"""usage: browser_test.py PROGRAM FOLDER

The page in a headless Chromium: no fault, controls change what is shown, figures stand where they belong, names stay
text, the first paint is quick. Leaves screenshots in FOLDER. Exit code 77 without a browser."""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, find_browser
from page_of import GRID, LAYER, OPERATIONS, lines_of, report

PROGRAM = os.path.abspath(sys.argv[1])
SHOTS = pathlib.Path(sys.argv[2]).absolute()
MOST_PAINT_MS = 2000
NASTY = "</script><img src=x onerror=document.title='ha'>\"'&"
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

    def text(self, name):
        return self.browser.value(f"document.getElementById({name!r}).textContent")

    def drawn(self, name):
        return self.browser.value(f"document.getElementById({name!r}).innerHTML")

    def change(self, name, value, event="change"):
        self.browser.value(CHANGE.format(name, str(value), event))

    def shown_sections(self):
        return self.browser.value("[...document.querySelectorAll('main > section')].filter((one) => !one.hidden)"
                                  ".map((one) => one.id)")


class WholeGrid(Page):
    def setUp(self):
        super().setUp()
        self.opened(GRID)

    def test_is_painted_at_once(self):
        self.browser.until("performance.getEntriesByName('first-contentful-paint').length > 0")
        paint = self.browser.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"first contentful paint after {paint:.0f} ms")
        self.assertLess(paint, MOST_PAINT_MS)

    def test_loads_nothing(self):
        self.assertEqual(self.browser.value("performance.getEntriesByType('resource').map((one) => one.name)"
                                            ".filter((name) => !name.startsWith('data:'))"), [])

    def test_shows_its_sections(self):
        self.assertEqual(self.shown_sections(), ["answer", "ranking", "timelines", "degrees", "winners", "operations",
                                                 "accuracy", "memory", "warnings", "runs"])
        self.assertIn("EMULATED", self.text("emulated"))
        self.assertIn("EMULATED", self.text("card"))

    def test_layers_change_the_answer(self):
        before = self.text("card"), self.drawn("bars"), self.drawn("timeline")
        self.browser.value("document.getElementById('next').click()")
        for old, new in zip(before, (self.text("card"), self.drawn("bars"), self.drawn("timeline")), strict=True):
            self.assertNotEqual(old, new)

    def test_sliders_change_timelines_degrees_and_what_if(self):
        before = [self.drawn(name) for name in ("timeline", "degree-map", "what-if")]
        for slider in ("inter", "intra", "compute", "alpha", "batch"):
            self.change(f"slider-{slider}", -1, "input")
            after = [self.drawn(name) for name in ("timeline", "degree-map", "what-if")]
            for old, new in zip(before, after, strict=True):
                self.assertNotEqual(old, new, slider)
            self.browser.value("document.getElementById('reset').click()")
            self.assertEqual(before, [self.drawn(name) for name in ("timeline", "degree-map", "what-if")], slider)

    def test_a_cell_draws_its_timeline(self):
        before = self.drawn("timeline")
        self.browser.value("document.querySelector('.cell:not(.chosen)').dispatchEvent(new Event('click'))")
        self.assertNotEqual(before, self.drawn("timeline"))
        self.browser.value("document.getElementById('own-degrees').click()")
        self.assertEqual(before, self.drawn("timeline"))

    def test_zooms(self):
        before = self.drawn("timeline")
        self.browser.value("document.getElementById('zoom-in').click()")
        self.assertNotEqual(before, self.drawn("timeline"))
        self.browser.value("document.getElementById('zoom-all').click()")
        self.assertEqual(before, self.drawn("timeline"))

    def test_filters_change_winners_and_speedups(self):
        before = self.text("winner-text"), self.drawn("winner-map"), self.drawn("speedups")
        self.assertIn("Of 1458 layers", before[0])
        name = self.browser.value("varying[0]")
        value = self.browser.value(f"document.getElementById('filter-{name}').options[1].value")
        self.change(f"filter-{name}", value)
        after = self.text("winner-text"), self.drawn("winner-map"), self.drawn("speedups")
        for old, new in zip(before, after, strict=True):
            self.assertNotEqual(old, new)

    def test_series_change_the_operations(self):
        before = self.drawn("bandwidth"), self.drawn("residuals")
        last = self.browser.value("[...document.getElementById('series').options].at(-1).value")
        self.change("series", last)
        self.assertNotEqual(before, (self.drawn("bandwidth"), self.drawn("residuals")))

    def test_mean_speedup_is_that_of_the_records(self):
        """As results/README.md has it, computed from the records by this test."""
        seconds = {}
        for line in lines_of(GRID):
            if line.get("key", "").startswith("run/"):
                seconds[line["parameters"]["layer"], line["schedule"]] = line["summary"]["total_s"]
        ratios = [seconds[layer, "tutel"] / time for (layer, schedule), time in seconds.items() if schedule == "fsmoe"]
        self.assertIn(f"mean {sum(ratios) / len(ratios):.3f}x of {len(ratios)}", self.text("speedups"))

    def test_looks(self):
        SHOTS.mkdir(parents=True, exist_ok=True)
        for scheme in ("light", "dark"):
            for width in (1280, 400):
                self.browser.look(width, 900, scheme)
                self.browser.open(self.folder / "page.html")
                self.browser.until("document.getElementById('speedups').children.length > 0")
                wide = self.browser.value("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, f"{scheme}, {width} wide: the page scrolls sideways")
                self.browser.screenshot(SHOTS / f"grid-{scheme}-{width}.png")
        self.browser.look(1000, 900, "light")
        self.browser.open(self.folder / "page.html")
        self.browser.print_media()
        self.browser.screenshot(SHOTS / "grid-print.png")
        self.assertEqual(len(list(SHOTS.glob("grid-*.png"))), 5)


class OtherRecords(Page):
    def test_command_of_the_answer_runs(self):
        self.opened(LAYER)
        command = self.browser.value("document.querySelector('#card pre').textContent")
        words = shlex.split(command)
        self.assertEqual(words[:2], ["./moetune", "simulate"])
        ran = subprocess.run([PROGRAM, *words[1:], "--json"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        best = json.loads(ran.stdout)
        times = {line["schedule"]: line["prediction"]["total_s"] for line in lines_of(LAYER)
                 if line.get("key", "").startswith("simulate/")}
        self.assertEqual(best["schedule"], min(times, key=times.get))
        self.assertAlmostEqual((best["forward_s"] + best["backward_s"]) / min(times.values()), 1, delta=1e-9)

    def test_contention_stays_as_computed(self):
        """a800's lanes slow each other: times are the program's, whatever the page's own replay leaves out."""
        degrees = ["--degree-forward", "4", "--degree-backward", "4"]
        layer = "--cluster a800 --dtype bfloat16 --batch 8 --seq 1024 --schedule fsmoe".split()
        ran = subprocess.run([PROGRAM, "simulate", *layer, *degrees, "--out", "slowed.jsonl"], cwd=self.folder,
                             capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.opened("slowed.jsonl")
        self.assertIn("Lanes slow each other", self.text("replay-source"))
        total = self.browser.value("totalSeconds(data.replays.layers[0].schedules[0], [4, 4], AS_RECORDED)")
        self.assertAlmostEqual(total / self.browser.value("predicted(0)"), 1, delta=1e-8)

    def test_operations_alone(self):
        self.opened(OPERATIONS)
        self.assertEqual([name for name in self.shown_sections() if name != "warnings"], ["operations", "runs"])

    def test_recorded_timelines_without_replays(self):
        self.opened(LAYER, "--timelines", 0)
        self.assertIn("as recorded", self.text("timeline"))

    def test_names_stay_text(self):
        lines = lines_of(LAYER)
        for line in lines:
            if "parameters" in line:
                line["parameters"]["layer"] = NASTY
                line["parameters"]["cluster"] = NASTY
        (self.folder / "nasty.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("nasty.jsonl", "--cluster", "testbed-b")
        self.assertEqual(self.browser.value("document.querySelectorAll('img').length"), 0)
        self.assertNotEqual(self.browser.value("document.title"), "ha")
        self.assertIn(NASTY, self.text("layer"))
        command = self.browser.value("document.querySelector('#card pre').textContent")
        self.assertIn(NASTY, shlex.split(command))

    def test_losses_and_pairs(self):
        header = lines_of(LAYER)[0]
        model = {"kind": "case", "key": "run/tiny/fsmoe", "status": "ok", "schedule": "fsmoe", "degree_forward": 2,
                 "degree_backward": 1, "backend": "local", "emulated": False, "dilation": 1.0,
                 "parameters": {"cluster": "host", "model": "tiny", "layers": 2, "tokens": 64},
                 "samples": {"total_s": [[0.2], [0.3]], "loss": [[3.5], [3.25]]},
                 "summary": {"total_s": 0.25, "held_out_loss": 3.125}, "prediction": {"total_s": 0.2}}
        launches = [{"kind": "case", "key": f"ab/{pair}/{arm}/run/a/fsmoe", "status": "ok", "schedule": "",
                     "backend": "none", "emulated": False, "dilation": 1.0,
                     "parameters": {"case": "run/a/fsmoe", "pair": pair, "arm": arm}, "samples": {}, "prediction": {},
                     "summary": {"median_s": seconds}}
                    for pair in range(3) for arm, seconds in (("base", 0.1), ("head", 0.11))]
        verdict = {"kind": "case", "key": "ab/verdict/run/a/fsmoe", "status": "ok", "schedule": "", "backend": "none",
                   "emulated": False, "dilation": 1.0, "parameters": {"case": "run/a/fsmoe"}, "samples": {},
                   "prediction": {}, "summary": {"verdict": "SLOW", "ratio": 1.1, "least": 1.09,
                                                 "most": 1.11, "p": 0.001, "pairs": 3}}
        text = "".join(json.dumps(line) + "\n" for line in (header, model, *launches, verdict))
        (self.folder / "others.jsonl").write_text(text)
        self.opened("others.jsonl")
        shown = self.shown_sections()
        self.assertIn("models", shown)
        self.assertIn("pairs", shown)
        self.assertIn("3.125", self.text("model-table"))
        self.assertIn("+25.00\u00a0%", self.text("model-table"))
        self.assertIn("1.100x", self.text("pair-table"))
        self.assertIn("SLOW", self.text("pair-table"))


if __name__ == "__main__":
    PROGRAM_OF_BROWSER = find_browser()
    if PROGRAM_OF_BROWSER is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
