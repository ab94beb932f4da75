"""usage: plan_test.py PROGRAM

The functions of moetune.plan against the documents that the program prints, its flags and the fields of the sources."""
import dataclasses
import inspect
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = os.path.abspath(sys.argv[1])
os.environ["MOETUNE_PROGRAM"] = PROGRAM
sys.path.insert(0, str(ROOT / "python"))
from moetune import plan  # noqa: E402

LAYER = {"batch": 1, "seq": 256, "model_dim": 512, "hidden": 1024}
WORDS = "--batch 1 --seq 256 --model-dim 512 --hidden 1024".split()


class Plans(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)

    def printed(self, *words):
        done = subprocess.run([PROGRAM, *words, "--json", "--quiet"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def refused(self, *words):
        """The program's line."""
        done = subprocess.run([PROGRAM, *words, "--json", "--quiet"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr.removeprefix("moetune: ").rstrip("\n")

    def has_values_of(self, made, document):
        """Every key of a document is a field, or in `extra`."""
        for key, value in document.items():
            if not isinstance(value, (dict, list)):
                self.assertEqual(getattr(made, key, made.extra.get(key)), value, key)

    def test_tune_a_layer(self):
        answer = plan.tune(**LAYER)
        document = self.printed("tune", "--no-verify", *WORDS, "--out", "r.jsonl")
        self.has_values_of(answer.use, document["use"])
        self.has_values_of(answer.layer, document["layer"])
        self.assertEqual([each.schedule for each in answer.ranking], [row["schedule"] for row in document["ranking"]])
        for made, row in zip(answer.ranking, document["ranking"]):
            self.has_values_of(made, row)
        self.assertEqual(answer.notes, document["notes"])

    def test_tune_keeps_records_only_where_asked(self):
        self.assertIsNone(plan.tune(schedule="tutel", **LAYER).records)
        self.assertEqual(os.listdir(), [])
        self.assertEqual(plan.tune(schedule="tutel", records="kept.jsonl", **LAYER).records, "kept.jsonl")
        self.assertEqual(os.listdir(), ["kept.jsonl"])
        plan.tune(schedule="fsmoe", records=pathlib.Path("kept.jsonl"), **LAYER)
        planned = [case.schedule for case in plan.read_records("kept.jsonl") if case.key.startswith("plan/")]
        self.assertEqual(planned, ["fsmoe"])

    def test_simulate_repeats_the_recommended_plan(self):
        for shape in None, "auto":
            for given in LAYER, {"model": "tiny-mixtral", "cluster": "testbed-a", "layers": 2, "nearest": True}:
                with self.subTest(shape=shape, given=given):
                    answer = plan.tune(shape=shape, **given)
                    repeated, = answer.simulate().schedules
                    self.assertEqual(repeated.schedule, answer.use.schedule)
                    self.assertEqual(repeated.degree_forward, answer.use.degree_forward)
                    beside = answer.use.extra.get("expert_sums_s", 0) + answer.use.extra.get("head_s", 0)
                    self.assertAlmostEqual((repeated.total_s + beside) / answer.use.total_s, 1, places=9)
                    self.assertAlmostEqual(max(task.end_s for task in repeated.tasks) / repeated.total_s, 1, places=9)

    def test_compare_with_what_is_used_today(self):
        answer = plan.tune(current="tutel:1:1", **LAYER)
        self.assertEqual((answer.current.schedule, answer.current.degree_forward), ("tutel", 1))
        self.assertGreater(answer.current.total_s, answer.use.total_s)

    def test_tune_a_grid(self):
        answer = plan.tune_grid("fsmoe-30-b", schedule=["tutel", "fsmoe"])
        document = self.printed("tune", "--no-verify", "--grid", "fsmoe-30-b", "--schedule", "tutel,fsmoe", "--out",
                                "r.jsonl")
        self.assertEqual(len(answer.layers), 30)
        for made, row in zip(answer.layers, document["layers"]):
            times = {each["schedule"]: each["forward_s"] + each["backward_s"] for each in row["schedules"]}
            self.assertEqual(made.layer, row["layer"])
            self.assertEqual(made.best().total_s, min(times.values()))
        self.assertIn(answer.layers[0].layer, answer._repr_html_())
        with self.assertRaisesRegex(plan.BadInput, "^tune: found neither a model nor a layer"):
            plan.tune(grid="fsmoe-30-b", schedule="tutel")
        with self.assertRaisesRegex(plan.BadInput, "^tune_grid: found a layer or a model"):
            plan.tune_grid(**LAYER)

    def test_simulate(self):
        one = plan.simulate(schedule="fsmoe", **LAYER)
        document = self.printed("simulate", "--schedule", "fsmoe", *WORDS)
        fsmoe = one["fsmoe"]
        self.has_values_of(fsmoe, document)
        self.assertEqual(one.cluster, "testbed-b")
        self.assertEqual(fsmoe.total_s, document["forward_s"] + document["backward_s"])
        self.assertEqual([dataclasses.asdict(task) for task in fsmoe.tasks],
                         [{**task, "extra": {}} for task in document["tasks"]])
        busy = {lane.name: lane.busy_s for lane in fsmoe.lanes}
        for name in busy:
            self.assertAlmostEqual(busy[name], sum(task.end_s - task.start_s for task in fsmoe.tasks
                                                   if task.lane == name), places=9)
        several = plan.simulate(schedule=("fsmoe", "lina"), **LAYER)
        self.assertEqual(several["fsmoe"].total_s, fsmoe.total_s)
        self.assertEqual([each.schedule for each in several.schedules], ["fsmoe", "lina"])
        with self.assertRaises(KeyError):
            several["tutel"]

    def test_simulate_a_model(self):
        found = plan.simulate("tiny-mixtral", "testbed-a", schedule="tutel,fsmoe", layers=2, micro_batches=2,
                              nearest=True)
        self.assertEqual((found.model, found.layers, found.micro_batches), ("tiny-mixtral", 2, 2))
        self.assertEqual({task.micro_batch for task in found["tutel"].tasks if task.layer >= 0}, {0, 1})

    def test_memory(self):
        found = plan.memory("mixtral-7b", zero=1)
        document = self.printed("memory", "--model", "mixtral-7b", "--zero", "1")
        for made, row in zip(found.estimates, document["estimates"]):
            self.has_values_of(made, row)
            self.assertEqual(made.total_bytes, made.weights_bytes + made.gradients_bytes + made.optimizer_bytes +
                             made.activations_bytes + made.buffers_bytes)
        self.assertEqual(found.memory_bytes, 11 * 2**30)
        larger = plan.memory("mixtral-7b", zero=1, memory_gib=1000)
        self.assertTrue(all(each.fits for each in larger.estimates))

    def test_read_records(self):
        path = ROOT / "tests/plots/data/verified.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        cases = [line for line in lines if line["kind"] == "case"]
        found = plan.read_records(path)
        self.assertEqual([case.key for case in found], [line["key"] for line in cases])
        self.assertEqual(len(found), len(cases))
        for case, line in zip(found, cases):
            self.has_values_of(case, line)
            self.assertEqual((case.parameters, case.prediction, case.summary),
                             (line["parameters"], line["prediction"], line["summary"]))
        self.assertTrue(found.command.startswith("moetune"))
        self.assertIn(found.cases[0].key, found._repr_html_())

    def test_unknown_keys_pass(self):
        made = plan._plan({"schedule": "fsmoe", "tokens_per_s": 5.0})
        self.assertEqual(made.extra, {"tokens_per_s": 5.0})

    def test_bad_input_is_the_programs_line(self):
        cases = [(lambda: plan.tune("nope"), ["tune", "--no-verify", "--model=nope"]),
                 (lambda: plan.tune(zeroo=3), ["tune", "--no-verify", "--zeroo=3"]),
                 (lambda: plan.simulate(batch=-1), ["simulate", "--batch=-1"]),
                 (lambda: plan.simulate(cluster="h100-8", dtype="float32", batch=1, schedule="fsmoe"),
                  ["simulate", "--cluster=h100-8", "--dtype=float32", "--batch=1", "--schedule=fsmoe"]),
                 (lambda: plan.memory(dtype="int3"), ["memory", "--dtype=int3"]),
                 (lambda: plan.run("fly"), ["fly"])]
        for call, words in cases:
            with self.subTest(words=words), self.assertRaises(plan.BadInput) as caught:
                call()
            self.assertEqual(str(caught.exception), self.refused(*words))
            self.assertEqual(caught.exception.exit_code, 2)
            self.assertIsInstance(caught.exception, ValueError)
            self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))), str(caught.exception))
        with self.assertRaisesRegex(plan.BadInput, r"^nowhere.jsonl: found no readable file"):
            plan.read_records("nowhere.jsonl")

    def test_no_value_takes_a_flag(self):
        before = set(os.listdir("."))
        for call, name in ((lambda: plan.simulate(schedule="fsmoe", trace=""), "trace"),
                           (lambda: plan.simulate(schedule=[]), "schedule"),
                           (lambda: plan.simulate(batch=True), "--batch"),
                           (lambda: plan.simulate(trace=True, batch=True), "--batch"),
                           (lambda: plan.simulate(help=True), "help"), (lambda: plan.memory(json=True), "json"),
                           (lambda: plan.tune(out="x.jsonl"), "out"),
                           (lambda: plan.tune_grid("fsmoe-30-b", overwrite=True), "overwrite"),
                           (lambda: plan.tune(no_verify=True), "no_verify")):
            with self.subTest(name=name), self.assertRaisesRegex(plan.BadInput, "^" + name + ": "):
                call()
        with self.assertRaisesRegex(plan.BadInput, "records=FILE"):
            plan.tune(cluster="testbed-b", out="x.jsonl")
        self.assertEqual(set(os.listdir(".")), before)

    def test_a_program_that_fails(self):
        os.environ["MOETUNE_PROGRAM"] = "./no-program"
        self.addCleanup(os.environ.__setitem__, "MOETUNE_PROGRAM", PROGRAM)
        with self.assertRaisesRegex(plan.MoetuneError, r"^./no-program: No such file or directory, expected"):
            plan.memory()

    def test_notebooks_show_a_table_and_a_timeline(self):
        for shown in plan.tune(**LAYER), plan.simulate(**LAYER), plan.simulate(schedule="tutel", **LAYER):
            page = xml.etree.ElementTree.fromstring(f"<div>{shown._repr_html_().replace('&#9632;', '')}</div>")
            rows = page.findall(".//tbody/tr")
            self.assertEqual(len(rows), len(getattr(shown, "ranking", None) or shown.schedules))
            tasks = page.findall(".//{*}rect")
            self.assertGreater(len(tasks), 20)
            self.assertIn("forward, layer 0, micro-batch 0, chunk 0: 0.000 to ", tasks[0].find("{*}title").text)
            right = max(float(task.get("x")) + float(task.get("width")) for task in tasks)
            widths = [float(svg.get("width")) for svg in page.findall(".//{*}svg")]
            self.assertAlmostEqual(right, max(widths), delta=1)
        self.assertIn("<td>mixtral-7b</td>".replace("td", "b"), plan.memory("mixtral-7b")._repr_html_())

    def test_html_is_escaped(self):
        page = plan.Records("<b>.jsonl", "moetune", [plan.Record("<i>", "ok", {}, {}, {})])._repr_html_()
        self.assertIn("&lt;b&gt;.jsonl", page)
        self.assertIn("&lt;i&gt;", page)

    def test_layers_have_the_fields_of_the_sources(self):
        fields = re.findall(r'\.key = "(\w+)"', (ROOT / "moe/shape/layer_fields.h").read_text())
        groups = re.findall(r'"(\w+)"', re.search(r"kParallelKeys\{(.*?)\}",
                                                  (ROOT / "moe/shape/layer_file.h").read_text(), re.DOTALL)[1])
        others = re.findall(r'"(\w+)"', "".join(
            re.findall(r"kCase\w+Keys =\s+with\(.*", (ROOT / "moe/formats/plan_json.h").read_text())))
        known = {each.name for each in dataclasses.fields(plan.Layer)} - {"extra"}
        self.assertEqual(known, set(fields + groups + others))

    def test_arguments_are_flags_of_the_program(self):
        for verb, function in (("tune", plan.tune), ("tune", plan.tune_grid), ("simulate", plan.simulate),
                               ("memory", plan.memory)):
            known = subprocess.run([PROGRAM, "--complete", f"moetune {verb} --"], capture_output=True, text=True,
                                   check=True).stdout.split()
            for name, argument in inspect.signature(function).parameters.items():
                if argument.kind is not argument.VAR_KEYWORD:
                    flag = "--" + {"records": "out"}.get(name, name).replace("_", "-")
                    self.assertIn(flag, known, verb)
            self.assertIn("flags: ", function.__doc__)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
