"""usage: decisions_test.py PROGRAM

The page beside what decided its records: commands to copy plan the same again, replays take what the records hold and
say what they lack. Exit code 77 without a browser."""
import json
import shlex
import unittest

from browser_page import Page, main
from page_of import LAYER, PLAN, ROOT, VERIFIED, cases_of, lines_of

SHAPE = "--batch 4 --seq 512 --model-dim 4096".split()


class Decisions(Page):
    def planned(self, *words):
        """The page of what `simulate` plans so."""
        self.moetune("simulate", *SHAPE, *words, "--out", "records.jsonl")
        self.opened("records.jsonl")

    def rewritten(self, file, *edits):
        """The page of a file with other cases."""
        lines = lines_of(file)
        for line in lines:
            if line["kind"] == "case":
                for edit in edits:
                    edit(line)
        (self.folder / "edited.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("edited.jsonl")

    def commands(self):
        return self.browser.value("rows.indices().map((row) => [commandOf(row), predicted(row)])")

    def check_commands(self):
        """Checks that each command plans what is on the page."""
        for command, seconds in self.commands():
            words = shlex.split(command)
            self.assertEqual(words[:2], ["./moetune", "simulate"])
            found = json.loads(self.moetune(*words[1:], "--json"))
            self.assertAlmostEqual((found["forward_s"] + found["backward_s"]) / seconds, 1, delta=1e-7, msg=command)

    def notes(self):
        return self.text("replay-notes")


class Commands(Decisions):
    def test_of_the_answer_runs(self):
        self.opened(LAYER)
        self.check_commands()
        times = {line["schedule"]: line["prediction"]["total_s"] for line in lines_of(LAYER)
                 if line.get("key", "").startswith("simulate/")}
        command = self.browser.value("document.querySelector('#card pre').textContent")
        found = json.loads(self.moetune(*shlex.split(command)[1:], "--json"))
        self.assertEqual(found["schedule"], min(times, key=times.get))

    def test_name_the_file_of_a_profile(self):
        text = (ROOT / "configs/clusters/testbed-b.toml").read_text()
        (self.folder / "my own.toml").write_text(text.replace('name = "testbed-b"', 'name = "mine"'))
        for words in (["--cluster", "my own.toml"], ["--cluster=my own.toml"]):
            (self.folder / "records.jsonl").unlink(missing_ok=True)
            self.planned("--schedule", "fsmoe,tutel", *words)
            self.check_commands()
            self.assertIn("moetune report ... --cluster FILE", self.text("warning-list"))
        self.opened("records.jsonl", "--cluster", "my own.toml")
        self.assertEqual(self.browser.value("data.replays.layers.length"), 1)

    def test_borrow_rows_where_the_records_did(self):
        self.planned("--schedule", "fsmoe,tutel", "--ep", 4, "--nearest")
        self.check_commands()
        self.assertEqual(self.browser.value("data.replays.layers[0].schedules.length"), 2)
        self.assertEqual(self.notes(), "")

    def test_of_runs_are_words_of_a_shell(self):
        lines = lines_of(LAYER)
        lines[0]["argv"] = ["moetune", "simulate", "--out", "a b'c$(touch x).jsonl"]
        (self.folder / "quoted.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("quoted.jsonl")
        command = self.browser.value("[...document.querySelectorAll('#run-list dt')]"
                                     ".find((one) => one.textContent === 'command').nextSibling.textContent")
        self.assertEqual(shlex.split(command), lines[0]["argv"])

    def test_of_a_plan_file_are_what_ran_it(self):
        self.rewritten(VERIFIED, lambda case: case["parameters"].update(plan="plan.json"))
        self.assertEqual(self.browser.value("data.replays.layers"), [])
        self.assertIn("runs of a plan file have no replays", self.text("warning-list"))
        for command, _ in self.commands():
            self.assertEqual(shlex.split(command), lines_of(VERIFIED)[0]["argv"])


class Replays(Decisions):
    def test_say_by_how_much_they_are_off(self):
        self.opened(LAYER)
        self.assertEqual(self.notes(), "")

        def slower(case):
            if case["key"] == "simulate/tutel":
                case["prediction"]["total_s"] *= 1.25
        self.rewritten(LAYER, slower)
        self.assertIn("(-20.00\u00a0%): decided or priced by what the record does not hold", self.notes())
        self.assertEqual(self.notes().count("recorded"), 1)

    def test_take_the_sizes_that_records_hold(self):
        self.moetune("simulate", *SHAPE, "--schedule", "lina-partition,tutel", "--micro-op-bytes", 4000000, "--out",
                     "pieces.jsonl")

        def forget(case):
            case["parameters"].pop("micro_op_bytes", None)
        self.rewritten(self.folder / "pieces.jsonl", forget)
        self.assertIn("lina-partition: replayed", self.notes())
        self.rewritten(self.folder / "pieces.jsonl", lambda case: case["parameters"].update(micro_op_bytes=4000000))
        self.assertEqual(self.notes(), "")
        self.assertEqual(self.browser.value("data.replays.layers[0].schedules.length"), 2)
        self.check_commands()
        self.rewritten(self.folder / "pieces.jsonl", lambda case: case["parameters"].update(min_chunk_bytes=4000000))
        self.assertNotIn("--min-chunk-bytes", self.commands()[1][0])  # tutel reads none

    def test_take_the_least_chunk_that_records_hold(self):
        self.moetune("simulate", *SHAPE, "--schedule", "monta", "--min-chunk-bytes", 4000000, "--out", "chunks.jsonl")
        self.rewritten(self.folder / "chunks.jsonl", lambda case: case["parameters"].update(min_chunk_bytes=4000000))
        self.assertIn("--min-chunk-bytes 4000000", self.commands()[0][0])
        self.check_commands()
        self.assertEqual(self.notes(), "")


class Tuned(Decisions):
    """A plan of exact rows, one of whose schedules ran, with whole ones."""

    def setUp(self):
        super().setUp()
        header, cases = lines_of(PLAN)[0], [case for case in cases_of(PLAN) if case["key"].startswith("plan/")]
        self.plan = next(case for case in cases if case["schedule"] == "fsmoe")
        self.layer = self.plan["parameters"]["layer"]
        run = {**self.plan, "key": f"run/{self.layer}/fsmoe", "backend": "local", "bound_s": 0.001,
               "parameters": {**self.plan["parameters"], "capacity_rounding": "ragged"},
               "samples": {"total_s": [[0.02], [0.03]]}, "summary": {"total_s": 0.025}, "prediction": {"total_s": 0.02}}
        lines = [header, *({**case, "kind": "case"} for case in (*cases, run))]
        (self.folder / "tuned.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.opened("tuned.jsonl")
        self.row = self.browser.value("rows.indices().find((row) => measured(row) !== null)")

    def cell(self, name):
        return self.browser.value(f"rows.get({self.row}, {name!r})")

    def test_rows_are_the_runs_but_for_the_planned_total(self):
        self.assertAlmostEqual(self.cell("planned_total_s") / self.plan["prediction"]["total_s"], 1, delta=1e-8)
        self.assertEqual((self.cell("planned_rounding"), self.cell("capacity_rounding")), ("exact", "ragged"))
        self.assertEqual((self.cell("predicted_total_s"), self.cell("bound_s")), (0.02, 0.001))
        for name in ("predicted_forward_s", "predicted_memory_bytes", "predicted_degree_bound_s"):
            self.assertIsNone(self.cell(name), name)
        self.assertIn("a rank needs", self.text("card"))

    def test_layers_count_as_they_are_ranked(self):
        self.assertNotIn("capacity_rounding", self.browser.value("varying"))
        self.assertEqual(self.browser.value("layers.indices().map((layer) => shapeOf(layer, 'capacity_rounding'))"),
                         ["exact"] * self.browser.value("layers.rows"))

    def test_planned_layers_have_replays_beside_those_that_ran(self):
        self.assertEqual(self.browser.value("data.replays.layers.length"), self.browser.value("layers.rows"))
        self.assertEqual(self.notes(), "")


if __name__ == "__main__":
    main()
