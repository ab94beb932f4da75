"""usage: plan_run_test.py PROGRAM

A plan's file, really run: the same bits as its schedule at its degrees."""
import json
import pathlib

from program import ProgramTest, main

LAYER = ["--batch", "1", "--seq", "128", "--model-dim", "256", "--hidden", "512"]
DEGREES = ["--degree-forward", "3", "--degree-backward", "2"]


class PlanRuns(ProgramTest):
    def dumped(self, name, *words):
        self.call("layerbench", "--check-only", "--dump", name, "--out", f"{name}.jsonl", *words)
        files = sorted(pathlib.Path(self.path(name)).rglob("*.safetensors"))
        self.assertGreater(len(files), 1)
        return {path.relative_to(self.path(name)).as_posix(): path.read_bytes() for path in files}

    def test_same_bits(self):
        equal, none = ["--degree-forward", "2", "--degree-backward", "2"], []
        for schedule, degrees in {"fsmoe": DEGREES, "tutel": equal, "parm-s1": none, "lina": equal}.items():
            with self.subTest(schedule=schedule):
                self.call("simulate", *LAYER, "--schedule", schedule, *degrees, "--out", "r.jsonl", "--overwrite")
                self.call("export", "plan", "r.jsonl", "-o", "plan.json")
                directly = self.dumped(f"direct-{schedule}", *LAYER, "--schedule", schedule, *degrees)
                by_plan = self.dumped(f"plan-{schedule}", "--plan", "plan.json")
                self.assertEqual(directly.keys(), by_plan.keys())
                for name, data in directly.items():
                    self.assertEqual(data, by_plan[name], name)

    def test_a_plan_of_no_schedule_runs_and_is_proven(self):
        self.call("simulate", *LAYER, "--schedule", "fsmoe", *DEGREES, "--out", "r.jsonl")
        self.call("export", "plan", "r.jsonl", "-o", "plan.json")
        directly = self.dumped("direct", "--plan", "plan.json")
        plan = json.loads(pathlib.Path(self.path("plan.json")).read_text())
        experts = [task for task in plan["tasks"] if task["kind"] == "expert" and task["phase"] == "forward"]
        last_dispatch = max(task["id"] for task in plan["tasks"]
                            if task["kind"] == "dispatch" and task["phase"] == "forward")
        experts[0]["after"].append(last_dispatch)  # no expert before all rows are there
        self.path("plan.json", json.dumps(plan))
        for name, data in self.dumped("changed", "--plan", "plan.json").items():
            self.assertEqual(data, directly[name], name)
        lines = map(json.loads, pathlib.Path(self.path("changed.jsonl")).read_text().splitlines())
        self.assertEqual([line["status"] for line in lines if line["kind"] == "case"], ["ok"])

    def test_iterations_have_the_same_bits(self):
        stack = [*LAYER, "--layers", "2", "--micro-batches", "2"]
        for schedule in ("wave", "fsmoe", "pair-1f1b"):
            with self.subTest(schedule=schedule):
                self.call("simulate", *stack, "--schedule", schedule, "--save-plan", "plan.json")
                directly = self.dumped(f"direct-{schedule}", *stack, "--schedule", schedule)
                by_plan = self.dumped(f"plan-{schedule}", "--plan", "plan.json")
                self.assertEqual(directly.keys(), by_plan.keys())
                for name, data in directly.items():
                    self.assertEqual(data, by_plan[name], name)

    def test_a_models_plan_trains_alike(self):
        model = ["--cluster", "host", "--threads", "2", "--steps", "2", "--json"]
        words = ["--model", "tiny-gpt", "--layers", "2", "--micro-batches", "2", "--schedule", "wave"]
        direct = json.loads(self.text("modelbench", *model, *words, "--save-plan", "plan.json", "--out", "d.jsonl"))
        by_plan = json.loads(self.text("modelbench", *model, "--plan", "plan.json", "--out", "p.jsonl"))
        self.assertEqual(direct["schedules"][0]["loss"], by_plan["schedules"][0]["loss"])
        self.assertEqual(by_plan["schedules"][0]["status"], "ok")
        self.assertRegex(by_plan["model"], "^plan [0-9a-f]{16}$")
        plan = json.loads(self.path_text("plan.json"))
        self.assertIn("--optimizer", self.refused("modelbench", *model, "--plan", "plan.json", "--optimizer", "sgd"))
        self.assertIn("--clip-norm", self.refused("modelbench", *model, "--plan", "plan.json", "--clip-norm", "0"))
        self.assertIn("modelbench --plan", self.refused("layerbench", "--cluster", "host", "--plan", "plan.json"))
        self.path("words.json", json.dumps(dict(plan, vocabulary=17)))
        self.assertIn("words.json: ends: ", self.refused("modelbench", *model, "--plan", "words.json"))
        first, second = [task for task in plan["tasks"] if task["kind"] == "head" and task["phase"] == "forward"]
        plan["tasks"][first["id"]]["micro_batch"] = second["micro_batch"]
        self.path("plan.json", json.dumps(plan))
        self.assertIn("plan.json: plan: ", self.refused("modelbench", *model, "--plan", "plan.json"))

    def test_is_timed_beside_its_prediction(self):
        self.call("simulate", *LAYER, "--schedule", "fsmoe", *DEGREES, "--out", "r.jsonl")
        self.call("export", "plan", "r.jsonl", "-o", "plan.json")
        document = json.loads(self.text("layerbench", "--plan", "plan.json", "--iterations", "2", "--json", "--out",
                                        "l.jsonl"))
        [run] = document["schedules"]
        simulated = json.loads(self.text("simulate", "--plan", "plan.json", "--json", "--cluster",
                                         "testbed-b"))
        self.assertEqual(run["schedule"], "fsmoe")
        self.assertEqual((run["degree_forward"], run["degree_backward"]), (3, 2))
        self.assertAlmostEqual(run["predicted"]["total_s"], simulated["forward_s"] + simulated["backward_s"], places=9)
        self.assertEqual(run["predicted"]["gar_in_moe_bytes"], simulated["gar_in_moe_bytes"])
        [case] = [case for case in map(json.loads, pathlib.Path(self.path("l.jsonl")).read_text().splitlines())
                  if case["kind"] == "case"]
        self.assertRegex(case["parameters"]["plan"], "^[0-9a-f]{16}$")
        self.assertIn(case["parameters"]["plan"], case["key"])
        self.call("export", "tutel", "l.jsonl", code=2)  # its records have the layer, and no schedule of Tutel's

    def test_a_broken_plan_is_refused_before_anything_runs(self):
        self.call("simulate", *LAYER, "--schedule", "fsmoe", *DEGREES, "--out", "r.jsonl")
        self.call("export", "plan", "r.jsonl", "-o", "plan.json")
        plan = json.loads(pathlib.Path(self.path("plan.json")).read_text())
        plan["tasks"][7]["lane"] = 9
        self.path("plan.json", json.dumps(plan))
        self.assertIn("(task 7)", self.refused("layerbench", "--plan", "plan.json"))


if __name__ == "__main__":
    main()
