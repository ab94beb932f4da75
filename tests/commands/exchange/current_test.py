"""The user's layout (tune --current) and the way from it to the recommended plan, against plans of the same flags."""
import json
import math
import random
import re
import subprocess

from program import PROGRAM, ProgramTest, main

MODELS = (["--model", "qwen3-30b-a3b", "--layers", "2", "--cluster", "h100-8"],
          ["--model", "olmoe-1b-7b", "--layers", "2", "--cluster", "h100-8"],
          ["--model", "mixtral-7b", "--layers", "2", "--dtype", "bfloat16", "--cluster", "h100-2x8-ib-400"],
          ["--model", "gpt2-xl@fsmoe", "--cluster", "testbed-b"])
SCHEDULES = "ds-moe,tutel,fsmoe"  # among which the way to the best is searched in less time
MEGATRON = """#!/bin/bash
ARGS=(--tensor-model-parallel-size 2   # a comment
      --expert-model-parallel-size=8 --expert-tensor-parallel-size 1
      --micro-batch-size 1 --global-batch-size 16
      --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\
      --use-distributed-optimizer)
"""


class CurrentTest(ProgramTest):
    def run_tune(self, *words):
        line = [PROGRAM, "tune", "--no-verify", "--out", "r.jsonl", "--overwrite", "--quiet", *map(str, words)]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True)

    def tune(self, *words):
        done = self.run_tune("--json", *words)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        return json.loads(done.stdout)

    def check_way(self, model, answer, nearest):
        """Each layout takes what a plan of its flags alone takes, and the gains multiply to the whole."""
        current = answer["current"]
        flags = dict(flag.split(" ") for flag in current["flags"])
        rows = [current] + [step["layout"] for step in current["steps"]]
        for number, row in enumerate(rows):
            if number > 0:
                flags.update(flag.split(" ") for flag in current["steps"][number - 1]["flags"])
            if not row["fits"]:
                continue
            asked = dict(flags)
            if int(row["micro_batches"]) == 1:
                asked.pop("--pipeline", None)
            if row["ep"] == 1 or row["esp"] == 1:
                asked.pop("--placement", None)
            if asked["--cp"] == "1":
                asked.pop("--cp-exchange", None)
            alone = self.tune(*model, *[word for pair in asked.items() for word in pair], *nearest)["use"]
            self.assertAlmostEqual(alone["total_s"] / row["total_s"], 1, delta=1e-9, msg=(model, asked))
            self.assertEqual(alone["memory_bytes"], row["memory_bytes"])
        seconds = [row["total_s"] for row in rows]
        last_s = seconds[-1] if current["steps"] else answer["use"]["total_s"]
        self.assertAlmostEqual(current["gain"], seconds[0] / last_s, delta=1e-9)
        for step, before, after in zip(current["steps"], seconds, seconds[1:]):
            self.assertAlmostEqual(step["gain"], before / after, delta=1e-9)
        if current["steps"]:
            # It ends early only where what is left is not predicted faster: the plan in use may be 1 % slower.
            self.assertLessEqual(seconds[-1], answer["use"]["total_s"] * (1 + 1e-9))
            self.assertGreaterEqual(seconds[-1], answer["use"]["total_s"] / (1.01 + 1e-9))
            self.assertAlmostEqual(math.prod(step["gain"] for step in current["steps"]), current["gain"], delta=1e-9)
        self.assertLessEqual(len(current["steps"]), 4)

    def test_each_step_is_a_plan_of_its_flags(self):
        draw, steps = random.Random(3), 0
        for number in range(4):
            model = MODELS[number % len(MODELS)]
            own = {"mp": draw.choice([1, 2]), "ep": draw.choice([4, 8]), "esp": 1,
                   "batch": 1 if number % 4 == 2 else draw.choice([1, 2]),
                   "recompute": draw.choice(["none", "selective", "full"]), "zero": draw.choice([0, 1])}
            search = ["--shape", "auto", "--global-batch", "16", "--schedule", SCHEDULES]
            if number % 4 == 3:  # its groups are the cluster's
                own, search = {"recompute": "full"}, []
            schedule = draw.choice(["tutel:2:2", "ds-moe", "fsmoe:1:1"])
            words = ",".join([schedule] + [f"{name}={value}" for name, value in own.items()])
            answer = self.tune(*model, *search, "--current", words)
            with self.subTest(model=model, words=words):
                self.check_way(model, answer, ["--nearest"] if search else [])
            steps += len(answer["current"]["steps"])
            text = self.run_tune(*model, *search, "--current", words, "--wide").stdout
            [block] = re.findall(r"^YOURS .*\n(?: {7}.*\n)*", text, re.MULTILINE)
            for step in answer["current"]["steps"]:
                self.assertIn(f"{step['gain']:.3f}x", block)
            with open(self.path("r.jsonl")) as file:
                parts = next(line["answer"] for line in map(json.loads, file) if "answer" in line)
            items = next(part["items"] for part in parts if part["label"] == "YOURS")
            self.assertEqual("; ".join(items), block[7:].rstrip().replace("\n       ", "; "))
        self.assertGreater(steps, 5)

    def test_a_file_of_megatron_says_the_same(self):
        self.path("train.sh", MEGATRON)
        search = [*MODELS[0], "--shape", "auto", "--global-batch", "16", "--schedule", SCHEDULES]
        of_file = self.tune(*search, "--current", "./train.sh")["current"]
        of_words = self.tune(*search, "--current",
                             "ds-moe,mp=2,ep=8,esp=1,pp=1,batch=1,global-batch=16,recompute=full,zero=1,pipeline=1f1b")
        self.assertEqual(of_file["total_s"], of_words["current"]["total_s"])
        self.assertEqual(of_file["flags"], of_words["current"]["flags"])
        settings = [setting for step in of_file["steps"] for setting in step["settings"]]
        self.assertTrue(any("recompute" in setting or "parallel-size" in setting for setting in settings), settings)

    def test_the_best_has_nothing_to_change(self):
        search = [*MODELS[1], "--shape", "auto", "--global-batch", "16", "--schedule", SCHEDULES]
        answer = self.tune(*search)
        use, shape = answer["use"], answer["shapes"]["ranked"][0]
        words = [use["schedule"]] + [f"{name}={shape[name]}" for name in ("mp", "ep", "esp", "pp", "batch", "zero")
                                     if name in shape]
        words += [f"recompute={shape.get('recompute', 'none')}"]
        words += [f"pipeline={shape['pipeline']}"] if shape["micro_batches"] > 1 else []
        words += [f"placement={shape['placement']}"] if shape["ep"] > 1 and shape["esp"] > 1 else []
        again = self.tune(*search, "--current", ",".join(words))
        self.assertEqual(again["current"]["steps"], [])
        self.assertAlmostEqual(again["current"]["gain"], 1, delta=0.01)

    def test_a_layout_that_does_not_fit_is_left_for_one_that_does(self):
        answer = self.tune("--model", "qwen3-30b-a3b", "--layers", "16", "--cluster", "h100-8", "--global-batch", "64",
                           "--schedule", SCHEDULES, "--current",
                           "tutel,mp=1,ep=8,esp=1,batch=8,zero=0,recompute=none")
        current = answer["current"]
        self.assertFalse(current["fits"])
        self.assertIn("does not fit", current["misfit"])
        self.assertTrue(current["steps"][-1]["layout"]["fits"])

    def test_faults_are_named(self):
        search = [*MODELS[0], "--shape", "auto", "--global-batch", "16", "--schedule", SCHEDULES]
        self.path("empty.sh", "echo\n")
        for words, said in (("tutel,tp=2", "--mp"), ("tutel,mp=2,mp=4", "twice"), ("tutel,mp=x", "mp"),
                            ("tutle,mp=2", "tutle"), ("tutel,,mp=2", "empty"), ("tutel,mp=3", "--current"),
                            ("tutel,ep=5", "--current"), ("tutel,mp=2,dp=8", "--current"),
                            ("tutel,mp", "expected mp=VALUE"),
                            ("tutel,recompute=most", "recompute"), ("./absent.sh", "absent.sh"),
                            ("./empty.sh", "empty.sh"), ("tutel,micro-batches=3", "--current")):
            done = self.run_tune(*search, "--current", words)
            self.assertEqual(done.returncode, 2, (words, done.stdout))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    main()
