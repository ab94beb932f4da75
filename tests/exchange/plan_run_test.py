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
        for schedule in ("fsmoe", "tutel", "parm-s1"):
            degrees = DEGREES if schedule == "fsmoe" else ["--degree-forward", "2", "--degree-backward", "2"]
            with self.subTest(schedule=schedule):
                self.call("simulate", *LAYER, "--schedule", schedule, *degrees, "--out", "r.jsonl", "--overwrite")
                self.call("export", "plan", "r.jsonl", "-o", "plan.json")
                directly = self.dumped(f"direct-{schedule}", *LAYER, "--schedule", schedule, *degrees)
                by_plan = self.dumped(f"plan-{schedule}", "--plan", "plan.json")
                self.assertEqual(directly.keys(), by_plan.keys())
                for name, data in directly.items():
                    self.assertEqual(data, by_plan[name], name)

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
