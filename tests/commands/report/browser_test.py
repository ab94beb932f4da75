"""usage: browser_test.py PROGRAM FOLDER

The page in a headless Chromium: no fault, controls change what is shown, figures stand where they belong, names stay
text, the first paint is quick. Leaves screenshots in FOLDER. Exit code 77 without a browser."""
import ast
import csv
import json
import pathlib
import shlex
import sys
import time

from browser_page import Page, main
from page_of import GRID, LAYER, OPERATIONS, PUBLISHED, ROOT, TRAINING, VERIFIED, cases_of, data_of, lines_of

SHOTS = pathlib.Path(sys.argv[2]).absolute()
MOST_PAINT_MS = 2000
NASTY = "</script><img src=x onerror=document.title='ha'>\"'&"
CUT_TEXTS = """[...document.querySelectorAll("svg text")].filter((text) => {
  const whole = text.closest("svg").viewBox.baseVal, box = text.getBBox();
  return !text.getAttribute("transform") && box.width > 0 && (box.x < -1 || box.x + box.width > whole.width + 1);
}).map((text) => text.textContent)"""


def style_of(name):
    """A table of plots/style.py, which loads no more than this where there is no matplotlib."""
    for statement in ast.parse((ROOT / "plots/style.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise AssertionError(f"plots/style.py has no {name}")


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
        self.assertEqual(self.shown_sections(), ["summary", "winners", "answer", "warnings", "ranking", "timelines",
                                                 "degrees", "operations", "accuracy", "memory", "runs"])
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
    def test_contention_is_replayed_and_drawn(self):
        """a800's lanes slow each other: times are the program's, and the lanes that are drawn end then."""
        degrees = ["--degree-forward", "4", "--degree-backward", "4"]
        layer = "--cluster a800 --dtype bfloat16 --batch 8 --seq 1024 --schedule fsmoe".split()
        self.moetune("simulate", *layer, *degrees, "--out", "slowed.jsonl")
        self.opened("slowed.jsonl")
        self.assertIn("Lanes slow each other", self.text("replay-source"))
        total = self.browser.value("totalSeconds(data.replays.layers[0].schedules[0], [4, 4], AS_RECORDED)")
        self.assertAlmostEqual(total / self.browser.value("predicted(0)"), 1, delta=1e-8)
        self.assertAlmostEqual(self.browser.value("groupsOfLayer()[0].end") / total, 1, delta=1e-12)
        alone = self.browser.value("(() => { const one = data.replays.layers[0].schedules[0]; contentionOf.set(one, "
                                   "null); return totalSeconds(one, [4, 4], AS_RECORDED); })()")
        self.assertLess(alone, 0.999 * total)

    def test_operations_alone(self):
        self.opened(OPERATIONS)
        self.assertEqual([name for name in self.shown_sections() if name != "warnings"], ["operations", "runs"])

    def test_recorded_timelines_without_replays(self):
        self.opened(LAYER, "--timelines", 0)
        self.assertIn("as recorded", self.text("timeline"))
        self.assertTrue(self.browser.value("byId('critical-text').hidden"))
        lines = self.browser.value("groupsOfLayer()[0].tasks.flatMap(taskLines)")
        self.assertNotIn("on the critical path", lines)
        self.assertEqual(self.browser.value("document.querySelectorAll('.task:not(.critical)').length"), 0)

    def test_of_operations_say_what_is_divided(self):
        self.opened(OPERATIONS)
        self.assertIn("bytes / time, GB/s", self.text("bandwidth"))
        lines = lines_of(OPERATIONS)
        for line in lines:
            if line["kind"] == "case":
                line["parameters"]["wire_bytes"] = line["parameters"].get("bytes", 0)
        (self.folder / "wired.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("wired.jsonl")
        self.assertIn("bus bandwidth, GB/s", self.text("bandwidth"))

    def test_bars_say_what_they_show(self):
        self.opened(LAYER)
        self.assertNotIn("as measured", self.text("kinds"))
        self.assertIn("Bars: predicted (outlined), forward", self.text("bars-text"))
        self.assertNotIn("Whiskers", self.text("bars-text"))
        self.assertEqual(self.browser.value("document.querySelectorAll('#bars .predicted').length"), 3)
        self.opened(VERIFIED)
        self.assertIn("dashed: as measured", self.text("kinds"))
        self.assertIn("predicted (outlined) and measured (filled)", self.text("bars-text"))
        self.assertIn("Whiskers", self.text("bars-text"))

    def test_measured_tasks_stand_above_simulated_ones_until_a_slider_moves(self):
        lines = lines_of(VERIFIED)
        tasks = {"rank": 2, "columns": ["kind", "phase", "lane", "chunk", "chunks", "start_s", "end_s",
                                        "predicted_start_s", "predicted_end_s"],
                 "rows": [["dispatch", "forward", "inter", 0, 1, 0.0, 0.004, 0.0, 0.003],
                          ["expert", "backward", "compute", 0, 1, 0.004, 0.006, 0.003, 0.008]]}
        for line in lines:
            if line.get("key", "").startswith("run/"):
                line["measured_timeline"] = tasks
        (self.folder / "measured.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("measured.jsonl")
        for told in ("measured on rank 2", "simulated", "difference: measured ends 2\u00a0ms earlier"):
            self.assertIn(told, self.text("timeline"))
        self.assertIn("Measured tasks are of one pass", self.text("replay-source"))
        self.change("slider-inter", -1, "input")
        self.assertNotIn("measured on rank", self.text("timeline"))

    def test_recommends_what_tune_does(self):
        """Predicted: fsmoe 1 % faster. What ran decides where it clearly says otherwise."""
        layer = lines_of(VERIFIED)[1]["parameters"]["layer"]
        cases = {case["schedule"]: case for case in lines_of(VERIFIED)[1:-1] if case["parameters"]["layer"] == layer}
        cases["tutel"]["prediction"]["total_s"], cases["fsmoe"]["prediction"]["total_s"] = 1.01, 1.0

        def best(tutel, fsmoe):
            for name, passes in (("tutel", tutel), ("fsmoe", fsmoe)):
                cases[name] |= {"samples": {"total_s": [[one] for one in passes]},
                                "summary": {"total_s": sorted(passes)[len(passes) // 2]}}
            lines = [lines_of(VERIFIED)[0], cases["tutel"], cases["fsmoe"]]
            (self.folder / "two.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            self.opened("two.jsonl")
            return self.browser.value("document.querySelector('.best strong').textContent")

        self.assertEqual(best([0.99, 0.99, 0.99, 0.99], [1.0, 1.0, 1.0, 1.0]), "fsmoe")  # 1 % is not clear
        self.assertIn("Within 1 %, which runs do not tell apart: tutel.", self.text("card"))
        self.assertEqual(best([0.9, 0.9, 0.95, 1.01], [1.0, 1.0, 1.0, 1.0]), "fsmoe")  # ranges that overlap
        self.assertIn("Ran faster, but not clearly so: tutel.", self.text("card"))
        self.assertEqual(best([0.9, 0.9, 0.95, 0.96], [1.0, 1.0, 1.0, 1.0]), "tutel")
        self.assertEqual(best([0.9, 0.9], [1.0, 1.0]), "tutel")  # too few passes to tell
        self.assertEqual(best([0.995, 0.995], [1.0, 1.0]), "fsmoe")

    def test_published_figures_alone(self):
        self.opened(PUBLISHED)
        self.assertEqual(self.shown_sections(), ["warnings", "published", "runs"])
        self.assertIn("-0.69\u00a0%", self.text("published-table"))
        self.assertTrue(self.browser.value("byId('download-rows').hidden && byId('nothing').hidden"))

    def test_says_that_nothing_can_be_drawn(self):
        lines = [line for line in lines_of(LAYER) if not line.get("key", "").startswith("simulate/")]
        (self.folder / "degrees.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("degrees.jsonl")
        self.assertFalse(self.browser.value("byId('nothing').hidden"))
        self.assertTrue(self.browser.value("byId('download-rows').hidden"))

    def test_narrow_pages_cut_no_text(self):
        self.opened(VERIFIED, LAYER, OPERATIONS)
        self.browser.look(400, 900, "light")
        self.browser.open(self.folder / "page.html")
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 400)
        self.assertEqual(self.browser.value(CUT_TEXTS), [])
        self.assertEqual(self.browser.value("[...document.querySelectorAll('.cell text')]"
                                            ".filter((one) => one.textContent === '').length"), 0)

    def test_a_schedule_has_a_colour_of_its_own(self):
        self.moetune(*"simulate --batch 2 --seq 512 --schedule all --out all.jsonl".split())
        expected = {name: colour for name, (colour, _) in style_of("SCHEDULES").items()}
        self.opened("all.jsonl")
        self.assertEqual(self.browser.value("SCHEDULES"), expected)
        shown = set(expected) - {"wave", "pair-1f1b", "lancet", "flowmoe", "chunked-ep"}  # which no layer has
        self.assertEqual(set(self.browser.value("scheduleNames")), shown)
        for scheme in ("light", "dark"):
            self.browser.look(1280, 900, scheme)
            found = self.browser.value("scheduleNames.map((name) => { document.body.style.color = scheduleColour(name);"
                                       "return getComputedStyle(document.body).color; })")
            self.assertEqual(len(set(found)), len(shown), scheme)
            darkest = min(max(map(int, one[4:-1].split(","))) for one in found)
            self.assertGreater(darkest, 110 if scheme == "dark" else 0)

    def test_families_of_tasks_look_as_in_pictures(self):
        self.opened(LAYER)
        expected = [[name, colour, hatch, list(kinds)] for name, (colour, hatch, kinds)
                    in style_of("KIND_FAMILIES").items()]
        self.assertEqual(self.browser.value("KIND_FAMILIES"), expected)
        known = {kind for _, _, _, kinds in expected for kind in kinds}
        self.assertLessEqual(known - {"embed", "head"}, set(self.browser.value("data.replays.kinds")))
        self.assertLessEqual(self.browser.value("document.querySelectorAll('#kinds .swatch').length"), 7)
        fills = self.browser.value("[...new Set([...document.querySelectorAll('.task rect')]"
                                   ".map((one) => one.getAttribute('fill')))]")
        for fill in fills:
            self.assertTrue(self.browser.value(f"document.querySelector({fill[4:-1]!r}) !== null"), fill)

    def rewritten(self, change):
        """The page of a layer whose times are changed."""
        lines = lines_of(LAYER)
        for line in lines:
            if line.get("key", "").startswith("simulate/"):
                change(line)
        (self.folder / "changed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("changed.jsonl", "--timelines", 0)

    def test_an_outlier_is_cut_and_says_so(self):
        bars = "[...document.querySelectorAll('#bars rect.predicted')].map((one) => Number(one.getAttribute('width')))"

        def times(values):
            self.rewritten(lambda line: line["prediction"].update(total_s=values[line["schedule"]]))
            return self.browser.value(bars), self.text("bars"), self.browser.value(
                "document.querySelectorAll('#bars .cut').length")
        lengths, text, cuts = times({"ds-moe": 9.0, "tutel": 1.0, "fsmoe": 0.9})
        self.assertEqual((cuts, text.count("bar cut")), (1, 1))
        self.assertAlmostEqual(lengths[2] / lengths[1], 1.1, delta=1e-9)  # 9 times as long
        self.assertAlmostEqual(lengths[0] / lengths[1], 0.9, delta=1e-9)
        lengths, text, cuts = times({"ds-moe": 2.0, "tutel": 1.0, "fsmoe": 0.9})
        self.assertEqual((cuts, text.count("bar cut")), (0, 0))
        self.assertAlmostEqual(lengths[2] / lengths[1], 2, delta=1e-9)

    def test_the_answer_is_shown_though_its_run_went_wrong(self):
        self.moetune(*"tune --no-verify --batch 2 --schedule tutel,fsmoe --out answer.jsonl".split())
        header, plans, *frameworks, answer, end = lines_of(self.folder / "answer.jsonl")
        self.assertEqual(answer["schedule"], "fsmoe")
        name = answer["parameters"]["layer"]
        run = {"kind": "case", "key": f"run/{name}/fsmoe", "status": "invalid", "reason": "too many overruns",
               "parameters": plans["parameters"], "schedule": "fsmoe", "degree_forward": answer["degree_forward"],
               "degree_backward": answer["degree_backward"], "backend": "local", "emulated": True, "dilation": 1.0,
               "samples": {}, "summary": {}, "prediction": {"total_s": 0.5}}
        (self.folder / "invalid.jsonl").write_text("".join(json.dumps(line) + "\n"
                                                           for line in (header, plans, *frameworks, run, answer, end)))
        self.opened("invalid.jsonl")
        self.assertEqual(self.browser.value("document.querySelector('#card .best strong').textContent"), "fsmoe")
        self.assertEqual(self.browser.value("document.querySelector('#card .verdict').textContent"),
                         answer["answer"][0]["items"][0])

    def test_bars_of_narrow_pages_keep_their_words(self):
        self.rewritten(lambda line: line["prediction"].update(total_s=0.70095 if line["schedule"] == "tutel" else 0.1))
        self.browser.look(390, 900, "light")
        self.browser.open(self.folder / "page.html")
        self.assertIn("bar cut", self.text("bars"))
        self.assertEqual(self.browser.value(CUT_TEXTS), [])

    def test_equal_schedules_share_a_bar(self):
        def alike(line):
            if line["schedule"] != "fsmoe":
                line["prediction"]["total_s"] = 1.0
                line["degree_forward"] = line["degree_backward"] = 2
        self.rewritten(alike)
        self.assertEqual(self.browser.value("document.querySelectorAll('#bars rect.predicted').length"), 2)
        self.assertIn("ds-moe +1", self.text("bars"))
        self.assertIn("ds-moe = tutel", self.text("bars-folded"))

    def test_labels_of_points_keep_apart(self):
        boxes = self.browser.value if self.opened(OPERATIONS) is None else None
        found = boxes("""(() => { const label = labels({ left: 0, right: 400, top: 0, bottom: 300 });
          const root = document.body.appendChild(svg("svg", { width: 400, height: 300 })), places = [];
          for (let i = 0; i < 40; ++i) {
            const text = label(20 + 9 * i, 100 + 3 * (i % 5), `${2 ** (i % 12)} MiB`);
            if (text) root.append(text);
          }
          return [...root.children].map((one) => { const { x, y, width, height } = one.getBBox();
            return [x, y, x + width, y + height]; }); })()""")
        self.assertGreater(len(found), 8)
        for i, (left, top, right, bottom) in enumerate(found):
            self.assertTrue(left >= 0 and right <= 400)
            for other in found[:i]:
                self.assertTrue(right <= other[0] or left >= other[2] or bottom <= other[1] + 3 or top >= other[3] - 3)
        ticks = boxes("apart([1, 2, 3, 4, 5], (tick) => 30 * tick, (tick) => `${tick}000 GFLOP`)")
        self.assertEqual(ticks, [1, 4])  # 70 points wide each, 30 apart, 6 between them

    def test_tables_that_scroll_say_so(self):
        self.opened(OPERATIONS)
        shown = "getComputedStyle(document.querySelector('#fits .cue')).display"
        self.assertEqual(self.browser.value(shown), "none")
        self.browser.look(390, 900, "light")
        self.browser.open(self.folder / "page.html")
        self.browser.until("document.querySelector('#fits .scrolls') !== null")
        self.assertEqual(self.browser.value(shown), "block")
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 390)

    def test_any_run_of_a_file_can_be_chosen(self):
        several = (self.folder / "several.jsonl")
        for batch in (1, 2, 4):
            self.moetune("simulate", "--batch", batch, "--seq", 512, "--schedule", "tutel,fsmoe", "--out", "one.jsonl",
                         "--overwrite")
            with open(several, "a") as file:
                file.write((self.folder / "one.jsonl").read_text())
        self.opened("several.jsonl")
        batches = "layers.indices().map((layer) => layers.get(layer, 'batch'))"
        self.assertEqual(self.browser.value(batches), [4])
        self.assertIn("1 of 3 runs shown", self.text("run-picker"))
        total = self.browser.value("predicted(0)")
        for chosen, expected in (([0], [1]), ([0, 1], [1, 2]), ([0, 1, 2], [1, 2, 4])):
            self.browser.open(self.folder / "page.html", f"?runs={','.join(map(str, chosen))}")
            self.assertEqual(self.browser.value("[...document.querySelectorAll('#run-choices input')]"
                                                ".flatMap((box, i) => (box.checked ? [i] : []))"), chosen)
            self.assertEqual(self.browser.value(batches), expected)
            self.assertEqual(self.browser.value("rows.rows"), 2 * len(expected))
            off = self.browser.value("Math.max(...data.replays.layers.flatMap((one) => one.schedules.map((schedule) => "
                                     "Math.abs(totalSeconds(schedule, [schedule.degree_forward, "
                                     "schedule.degree_backward], AS_RECORDED) / predicted(schedule.row) - 1))))")
            self.assertLess(off, 1e-7)
        self.assertEqual(self.browser.value("predicted(4)"), total)

    def test_timelines_of_models_are_their_plans(self):
        self.moetune(*"tune --no-verify --model gpt-oss-20b --cluster h100-8 --layers 4 --dp 4 --ep 4 --pp 2 --mp 1 "
                     "--esp 1 --micro-batches 4 --schedule tutel,fsmoe-dw --out model.jsonl".split())
        self.opened("model.jsonl")
        groups = self.browser.value("groupsOfLayer().map((group) => [scheduleOf(group.row), group.end, group.lanes])")
        self.assertEqual({name for name, _, _ in groups}, {"tutel", "fsmoe-dw"})
        cases = {case["schedule"]: case["prediction"] for case in cases_of(self.folder / "model.jsonl")
                 if case["key"].startswith("plan/")}
        for name, end, lanes in groups:
            self.assertAlmostEqual(end / (cases[name]["forward_s"] + cases[name]["backward_s"]), 1, delta=1e-6)
            self.assertEqual({lane[0] for lane in lanes}, {"0", "1"})
            self.assertIn("without", self.text("timeline"))  # the output projection, which is no task
        self.assertNotIn("replay", self.text("warning-list"))

    def test_records_of_a_model_begin_with_it(self):
        self.opened(TRAINING)
        self.assertEqual(self.shown_sections()[0], "models")
        self.assertLess(self.browser.value("document.getElementById('model-bars').getBoundingClientRect().top"), 300)
        self.assertEqual(self.browser.value("document.querySelectorAll('#model-bars rect.schedule').length"), 2)

    def test_a_grid_begins_with_its_summary(self):
        self.moetune("tune", "--no-verify", "--grid", ROOT / "tests/plots/grid.toml", "--out", "small.jsonl")
        self.opened("small.jsonl")
        self.assertEqual(self.shown_sections()[:3], ["summary", "winners", "answer"])

    def test_buttons_copy(self):
        self.opened(LAYER)
        self.browser.allow_clipboard()
        for i, shown in enumerate(self.browser.value("[...document.querySelectorAll('#card pre')]"
                                                     ".map((one) => one.textContent)")):
            button = f"document.querySelectorAll('#card button')[{i}]"
            self.browser.value(f"{button}.click()")
            self.browser.until(f"{button}.textContent === 'copied'")
            self.assertEqual(self.browser.value("navigator.clipboard.readText()"), shown)

    def test_where_no_page_may_copy_the_text_is_selected(self):
        self.opened(LAYER)
        self.browser.value("navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false;"
                           "document.querySelector('#card button').click()")
        self.browser.until("document.querySelector('#card button').textContent.startsWith('selected')")
        self.assertEqual(self.browser.value("getSelection().toString()"),
                         self.browser.value("document.querySelector('#card pre').textContent"))

    def test_data_are_saved(self):
        self.opened(LAYER)
        self.browser.save_into(self.folder)
        for name in ("download", "download-rows"):
            self.browser.value(f"byId({name!r}).click()")
        saved = [self.folder / name for name in ("report.json", "rows.csv")]
        end = time.monotonic() + 30
        while not all(path.exists() for path in saved) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(json.loads(saved[0].read_text()), data_of(self.folder / "page.html"))
        with open(saved[1], newline="") as text:
            rows = list(csv.DictReader(text))
        self.assertEqual([row["schedule"] for row in rows], ["ds-moe", "tutel", "fsmoe"])
        for row, line in zip(rows, (one for one in lines_of(LAYER) if one.get("key", "").startswith("simulate/")),
                             strict=True):
            self.assertEqual(row["layer"], line["parameters"]["layer"])
            self.assertAlmostEqual(float(row["predicted_total_s"]) / line["prediction"]["total_s"], 1, delta=1e-8)

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
    main()
