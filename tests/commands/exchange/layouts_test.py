"""Layouts that files of frameworks say (tune --current FILE), against the words for them and against exports; what no
plan has; and steps of a training's log (--measured) against their definition."""
import json
import random
import re
import shlex
import statistics
import subprocess

from program import PROGRAM, ROOT, ProgramTest, main

MODEL = ["--model", "olmoe-1b-7b", "--layers", "4", "--cluster", "h100-8"]
ALONE = ["--schedule", "ds-moe"]  # skips the search over the other schedules, which takes 30 times as long
BRIDGE = """model:
  _target_: megatron.bridge.models.GPTModelProvider
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  expert_model_parallel_size: 4
  expert_tensor_parallel_size: 1
  context_parallel_size: 1
  sequence_parallel: true
  recompute_granularity: full
  recompute_method: uniform
  recompute_num_layers: 1
  pipeline_model_parallel_layout: null
train: {micro_batch_size: 1, global_batch_size: 16}
ddp: {use_distributed_optimizer: false, overlap_grad_reduce: true}
optimizer:
  use_distributed_optimizer: true   # either is enough
dataset: {data_parallel_size: 4}
"""
NEMO = """trainer:
  devices: 8
  num_nodes: 1
  strategy:
    _target_: nemo.lightning.pytorch.strategies.megatron_strategy.MegatronStrategy
    tensor_model_parallel_size: 2
    pipeline_model_parallel_size: 2
    virtual_pipeline_model_parallel_size: 2
    expert_model_parallel_size: 4
    expert_tensor_parallel_size: 1
    sequence_parallel: true
    ddp: {use_distributed_optimizer: true}
model: {config: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}}
data: {micro_batch_size: 1, global_batch_size: 16}
"""
NEMO1 = """trainer: {num_nodes: 1, devices: 8}
exp_manager:
  checkpoint_callback_params:
    model_parallel_size: ${multiply:${model.tensor_model_parallel_size}, ${model.pipeline_model_parallel_size}}
model:
  micro_batch_size: 1
  global_batch_size: 16
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  expert_model_parallel_size: 4
  expert_tensor_parallel_size: 1
  sequence_parallel: True
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  optim: {name: mcore_distributed_optim}
"""
MEGATRON = """torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 4 \\
  --num-layers-per-virtual-pipeline-stage 1 --expert-model-parallel-size 4 --expert-tensor-parallel-size=1 \\
  --sequence-parallel --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\
  --micro-batch-size 1 --global-batch-size 16 --use-distributed-optimizer
"""
DEEPSPEED = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
             "zero_optimization": {"stage": 1, "overlap_comm": True, "offload_optimizer": {"device": "none"}},
             "expert_parallel": {"enabled": True, "autoep_size": 4}, "bf16": {"enabled": True}}
MODEL_ARGS = """ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --num-virtual-stages-per-pipeline-rank: 2
  --expert-model-parallel-size: 4
  --expert-tensor-parallel-size: 1
  --context-parallel-size: 1
  --sequence-parallel: true
  --recompute-granularity: full
  --recompute-method: uniform
  --recompute-num-layers: 1
  --micro-batch-size: 1
  --global-batch-size: 16
  --use-distributed-optimizer: true
  --overlap-grad-reduce: false
"""
TORCHTITAN = """[job]
description = "made up"
[training]
local_batch_size = 2
global_batch_size = 16
seq_len = 4096
[parallelism]
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "never"
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "Interleaved1F1B"
expert_parallel_degree = 4
expert_tensor_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
WORDS = "ds-moe,mp=2,pp=2,virtual-stages=2,ep=4,esp=1,recompute=full,zero=1,batch=1,global-batch=16,pipeline=1f1b"


class LayoutsTest(ProgramTest):
    def run_tune(self, *words):
        line = [PROGRAM, "tune", "--no-verify", "--out", "r.jsonl", "--overwrite", "--quiet", *map(str, words)]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True)

    def current(self, current, *words, model=None, search=ALONE):
        done = self.run_tune(*(model or MODEL), "--json", "--current", current, *words, *search)
        self.assertEqual(done.returncode, 0, (current, done.stderr))
        return json.loads(done.stdout)["current"]

    def refuses(self, current, *said, words=()):
        done = self.run_tune(*MODEL, "--current", current, *words, *ALONE)
        self.assertEqual(done.returncode, 2, (current, done.stdout))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for text in said:
            self.assertIn(text, done.stderr)

    def test_each_format_says_what_words_say(self):
        expected = self.current(WORDS)
        for name, text, is_of in (("bridge.yaml", BRIDGE, "Megatron-Bridge"), ("nemo.yaml", NEMO, "NeMo"),
                                  ("nemo1.yml", NEMO1, "NeMo 1"), ("train.sh", MEGATRON, "Megatron-Core"),
                                  ("args.yaml", MODEL_ARGS, "Megatron-Core")):
            self.path(name, text)
            found = self.current("./" + name)
            with self.subTest(name=name):
                self.assertEqual(found["flags"], expected["flags"])
                self.assertEqual(found["total_s"], expected["total_s"])
                self.assertEqual((found["file"]["format"], found["file"]["defaults"]), (is_of, []))
                unplanned = ["ddp.overlap_grad_reduce true"] if is_of == "Megatron-Bridge" else []
                self.assertEqual(found["file"]["unplanned"], unplanned)
        expected = self.current("ds-moe,mp=1,ep=4,esp=1,pp=1,zero=1,recompute=selective,batch=1,micro-batches=2,"
                                "pipeline=1f1b")
        self.path("ds.json", json.dumps(DEEPSPEED))
        found = self.current("./ds.json")
        self.assertEqual((found["flags"], found["total_s"]), (expected["flags"], expected["total_s"]))
        self.assertEqual(found["file"]["defaults"], ["--mp 1", "--esp 1", "--pp 1", "--recompute selective"])
        self.assertEqual(found["file"]["unplanned"], ["zero_optimization.overlap_comm true"])

    def test_torchtitan(self):
        def words(**changes):
            plan = {"mp": 2, "ep": 4, "esp": 1, "pp": 1, "zero": 1, "recompute": "full", "batch": 2,
                    "global-batch": 16, "pipeline": "1f1b"}
            plan.update({key.replace("_", "-"): value for key, value in changes.items()})
            return self.current("ds-moe," + ",".join(f"{name}={value}" for name, value in plan.items() if value))

        self.path("t.toml", TORCHTITAN)
        found = self.current("./t.toml,pipeline=1f1b")
        self.assertEqual((found["flags"], found["total_s"]), (words()["flags"], words()["total_s"]))
        self.assertEqual((found["file"]["format"], found["file"]["defaults"]), ("torchtitan", ["--zero 1"]))
        self.assertEqual(found["file"]["unplanned"], ["parallelism.data_parallel_shard_degree -1"])
        steps = self.current("./t.toml", "--shape", "auto")["steps"]
        self.assertIn("activation_checkpoint.mode=selective",
                      " ".join(setting for step in steps for setting in step["settings"]))
        # With stages a local batch is cut, by default into single samples.
        staged = TORCHTITAN.replace("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 2")
        self.path("t.toml", staged.replace("global_batch_size = 16", "global_batch_size = -1"))
        found = self.current("./t.toml")
        self.assertEqual((found["batch"], found["micro_batches"], found["pp"]), (1, 2, 2))
        self.assertIn("parallelism.pipeline_parallel_schedule Interleaved1F1B", found["file"]["unplanned"])
        for old, new, said in (('description = "made up"', "enable_cpu_offload = true",
                                ("t.toml:2: job.enable_cpu_offload: found 'true'", "plans can offload only experts")),
                               ('mode = "full"', 'mode = "some"', ("t.toml:16:", "none, selective or full")),
                               ("local_batch_size = 2", "local_batch_size = 0", ("t.toml:4:", "found '0'"))):
            self.path("t.toml", TORCHTITAN.replace(old, new))
            self.refuses("./t.toml", *said)

    def test_settings_that_are_ignored_are_listed(self):
        self.path("t.toml", TORCHTITAN)
        line = [PROGRAM, "tune", "--no-verify", "--out", "r.jsonl", "--overwrite", *MODEL, *ALONE,
                "--current", "./t.toml"]
        said = [subprocess.run(line + more, cwd=self.folder, capture_output=True, text=True).stderr
                for more in ([], ["--verbose"])]
        self.assertNotIn("job.description", said[0])
        self.assertIn("that affect neither groups nor states: job.description, training.seq_len", said[1])

    def test_steps_are_settings_of_the_file(self):
        for name, text, key in (("b.yaml", BRIDGE, "model.recompute_granularity=selective"),
                                ("n.yaml", NEMO, "model.config.recompute_granularity=selective"),
                                ("o.yaml", NEMO1, "model.activations_checkpoint_granularity=selective"),
                                ("m.sh", MEGATRON, "--recompute-granularity selective")):
            self.path(name, text)
            found = self.current("./" + name, "--shape", "auto")
            self.assertIn(key, " ".join(setting for step in found["steps"] for setting in step["settings"]))
            # Of all schedules, the way leads to the best of those that the file's framework runs.
            found = self.current("./" + name, "--shape", "auto", search=[])
            flags = [flag for step in found["steps"] for flag in step["flags"]]
            self.assertTrue(flags)
            self.assertFalse([flag for flag in flags if flag.startswith("--schedule")], flags)

    def test_what_a_file_does_not_say_is_its_frameworks_default(self):
        self.path("b.yaml", "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: null}\n")
        found = self.current("./b.yaml")
        self.assertEqual(found["file"]["defaults"],
                         ["--ep 1", "--esp MP", "--pp 1", "--zero 1", "--recompute selective"])
        self.assertEqual((found["mp"], found["esp"], found["zero"]), (2, 2, 1))
        self.assertEqual(found["file"]["unplanned"], ["no sequence parallelism"])
        self.path("m.sh", "--tensor-model-parallel-size 2")
        self.assertEqual(self.current("./m.sh").get("zero", 0), 0)
        self.assertEqual(self.current("./m.sh,esp=1,mp=1")["mp"], 1)
        self.assertEqual(self.current("./m.sh,mp=4")["esp"], 4)
        self.path("n.yaml", "trainer: {strategy: {expert_model_parallel_size: 8}}\n")
        self.refuses("./n.yaml", "micro-batches of 4 over DP 8", "8")  # as NeMo would
        self.assertEqual(self.current("./n.yaml,batch=1")["batch"], 1)
        text = self.run_tune(*MODEL, *ALONE, "--current", "./b.yaml").stdout
        self.assertIn("defaults of Megatron-Bridge: --ep 1 --esp MP --pp 1 --zero 1 --recompute selective\n", text)
        # DeepSpeed derives the third size from two, or accumulates nothing.
        for sizes, batch, micro_batches in (({"train_batch_size": 16}, 2, 1),
                                            ({"train_batch_size": 16, "gradient_accumulation_steps": 2}, 1, 2),
                                            ({"train_micro_batch_size_per_gpu": 2}, 2, 1),
                                            ({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2}, 2, 2),
                                            ({"train_micro_batch_size_per_gpu": 2,
                                              "gradient_accumulation_steps": 3}, 2, 3)):
            self.path("d.json", json.dumps(sizes))
            found = self.current("./d.json")
            self.assertEqual((found["batch"], found["micro_batches"]), (batch, micro_batches), sizes)
        self.path("d.json", json.dumps({"train_batch_size": "auto", "expert_parallel": {"enabled": False,
                                                                                       "autoep_size": 4}}))
        self.assertEqual(self.current("./d.json")["ep"], 1)

    def test_words_behind_switches_are_the_scripts(self):
        for end in (")\ntorchrun ${ARGS[@]} pretrain_gpt.py", ")\nDATA_ARGS=(", "2>&1 | tee log", "$MORE"):
            for switch in ("--use-distributed-optimizer", "--sequence-parallel", "--overlap-grad-reduce"):
                self.path("m.sh", f"ARGS=(--tensor-model-parallel-size 2 --use-distributed-optimizer "
                                  f"--sequence-parallel {switch} {end}\n")
                found = self.current("./m.sh")
                with self.subTest(end=end, switch=switch):
                    self.assertEqual(found["zero"], 1)
                    self.assertEqual(found["file"]["unplanned"],
                                     [f"{switch} true"] if switch == "--overlap-grad-reduce" else [])
        self.path("m.sh", "ARGS=(--micro-batch-size 1 --use-megatron-fsdp)\ntorchrun")
        self.refuses("./m.sh", "--use-megatron-fsdp: found 'true', expected false")

    def test_variables_of_a_script_have_the_values_that_it_sets(self):
        plain = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --expert-model-parallel-size 4 " \
            "--micro-batch-size 2 --expert-tensor-parallel-size 1\n"
        self.path("plain.sh", plain)
        expected = self.current("./plain.sh")["flags"]
        for text in ("TP=2\nEP=4 MBS=2\nETP=1\n$",
                     "export TP='2'  # ranks\n  EP=\"4\"; MBS=${MBS:-2}\nreadonly ETP=${1:-1}\n$",
                     "TP=8\nTP=2\nPARTS=2\nEP=${PARTS}\nEP=4\nMBS=$TP ETP=${OTHER-1}\n$"):
            script = text + plain.replace("size 2 --expert-model", "size $TP --expert-model").replace(
                "parallel-size 4", "parallel-size ${EP}").replace("batch-size 2", 'batch-size "${MBS:-7}"').replace(
                "parallel-size 1", "parallel-size=${ETP}")
            with self.subTest(script=script):
                self.path("m.sh", script)
                self.assertEqual(self.current("./m.sh")["flags"], expected)
        for value in ("$TP", "${TP}", "${TP", "$((2 * 1))", "${TP%x}"):
            self.path("m.sh", f"EP=4\n--micro-batch-size 1 --tensor-model-parallel-size {value}")
            self.refuses("./m.sh", "m.sh:2: --tensor-model-parallel-size: found '$",
                         ", a variable that this file does not set, expected a whole number")

    def test_sizes_of_another_model_are_said(self):
        for name, text, sizes in (
                ("b.yaml", "model: {tensor_model_parallel_size: 1, seq_length: 8192, num_layers: 4}\n",
                 "model.seq_length 8192 (--seq 4096)"),
                ("m.sh", "--micro-batch-size 1 --seq-length 4096 --num-layers 16", "--num-layers 16 (--layers 4)")):
            self.path(name, text)
            self.assertEqual(self.current("./" + name, "--seq", 4096)["file"]["other_sizes"], [sizes])
            self.assertIn(f"the file's model differs (planned sizes in brackets): {sizes}\n",
                          self.run_tune(*MODEL, *ALONE, "--seq", 4096, "--current", "./" + name).stdout)

    def test_all_sizes_of_another_model_are_said(self):
        """Of olmoe-1b-7b: M 2048, H 1024, 16 heads, 64 experts, k 8, dropless; sizes that agree are not said."""
        self.path("m.sh", "--micro-batch-size 1 --seq-length 4096 --num-layers 4 --hidden-size 1024 --num-experts 8 "
                          "--moe-router-topk 2 --ffn-hidden-size 512 --num-attention-heads 8 --num-query-groups 4 "
                          "--moe-expert-capacity-factor 1.0")
        self.assertEqual(self.current("./m.sh")["file"]["other_sizes"],
                         ["--hidden-size 1024 (--model-dim 2048)", "--ffn-hidden-size 512 (--hidden 1024)",
                          "--num-attention-heads 8 (--heads 16)", "--num-query-groups 4 (--kv-heads 16)",
                          "--num-experts 8 (--experts 64)", "--moe-router-topk 2 (--top-k 8)",
                          "--moe-expert-capacity-factor 1.0 (--capacity-factor none)"])
        self.path("same.yaml", "model: {tensor_model_parallel_size: 1, hidden_size: 2048, ffn_hidden_size: 5, "
                               "moe_ffn_hidden_size: 1024, num_moe_experts: 64, moe_router_topk: 8, "
                               "num_attention_heads: 16, num_query_groups: 16, moe_expert_capacity_factor: null}")
        self.assertEqual(self.current("./same.yaml")["file"]["other_sizes"], [])
        self.assertEqual(self.current("./same.yaml", "--capacity-factor", 1.5)["file"]["other_sizes"], [])
        self.path("f.yaml", "model: {tensor_model_parallel_size: 1, moe_expert_capacity_factor: 1.5}")
        self.assertEqual(self.current("./f.yaml", "--capacity-factor", 1.5)["file"]["other_sizes"], [])
        self.assertEqual(self.current("./f.yaml", "--capacity-factor", 2)["file"]["other_sizes"],
                         ["model.moe_expert_capacity_factor 1.5 (--capacity-factor 2)"])

    def test_exports_say_the_plan(self):
        draw = random.Random(5)
        for number in range(12):
            pp = draw.choice([1, 1, 2])
            plan = {"mp": draw.choice([1, 2]), "ep": draw.choice([1, 2, 4]), "pp": pp,
                    "batch": draw.choice([1, 2]), "micro-batches": draw.choice([2, 4]), "pipeline": "1f1b",
                    "zero": draw.choice([0, 1]), "recompute": draw.choice(["none", "selective", "full"])}
            plan["esp"] = draw.choice([1, plan["mp"]]) if plan["ep"] * plan["mp"] * pp <= 8 else 1
            if number % 3 == 0:
                plan["cp"] = 2
                plan["cp-exchange"] = draw.choice(["allgather", "ring"])
            if pp == 2 and number % 2:
                plan["virtual-stages"] = 2
            flags = [word for name, value in plan.items() for word in ("--" + name, value)]
            self.text("tune", "--no-verify", *MODEL, "--nearest", "--schedule", "ds-moe", *flags, "--out", "s.jsonl",
                      "--overwrite")
            wanted = self.current("ds-moe," + ",".join(f"{name}={value}" for name, value in plan.items()))
            self.path("m.sh", self.text("export", "megatron", "s.jsonl"))
            found = self.current("./m.sh")
            with self.subTest(plan=plan):
                # Megatron-Core's attention keeps no scores, so that it has no plan with --recompute none.
                self.assertEqual([flag.replace("--recompute none", "--recompute selective")
                                  for flag in wanted["flags"]], found["flags"])
                for name in ("megatron-bridge", "nemo"):
                    self.path("o.yaml", self.text("export", name, "s.jsonl"))
                    again = self.current("./o.yaml")
                    self.assertEqual(again["file"]["unplanned"], [])
                    self.assertEqual((again["flags"], again["file"]["defaults"]),
                                     (found["flags"], ["--recompute selective"] * (plan["recompute"] == "none")))
                if pp == 1 and plan["esp"] == 1 and "cp" not in plan:
                    document = self.text("export", "deepspeed", "s.jsonl")
                    self.path("d.json", json.dumps(json.loads(document)["config"]))
                    self.path("whole.json", document)
                    for name in ("d.json", "whole.json"):
                        found = self.current(f"./{name},recompute={plan['recompute']}")
                        self.assertEqual(wanted["flags"], found["flags"], name)

    def test_exchanges_of_keys_and_values(self):
        """Megatron-Core's default is p2p; Transformer Engine refuses p2p with sliding windows."""
        def exchange(text, *words, model=MODEL):
            self.path("m.sh", "ARGS=(--micro-batch-size 1 " + text + ")\ntorchrun ${ARGS[@]} pretrain_gpt.py\n")
            found = self.current("./m.sh" + ",".join(("", *words)), "--nearest", model=model)
            flags = dict(flag.split(" ") for flag in found["flags"])
            return flags["--cp"], flags.get("--cp-exchange"), found["file"]["unplanned"]

        shared = "--context-parallel-size 2"
        self.assertEqual(exchange(shared), ("2", "ring", []))
        self.assertEqual(exchange(shared + " --cp-comm-type p2p"), ("2", "ring", []))
        self.assertEqual(exchange(shared + " --cp-comm-type p2p p2p"), ("2", "ring", []))
        self.assertEqual(exchange(shared + " --cp-comm-type all_gather"), ("2", "allgather", []))
        for types in ("a2a", "p2p a2a", "p2p all_gather"):
            self.assertEqual(exchange(f"{shared} --cp-comm-type {types}"),
                             ("2", "allgather", ["--cp-comm-type " + types.replace(" ", ",")]))
        for alone in ("", "--cp-comm-type p2p", "--context-parallel-size 1 --cp-comm-type p2p"):
            self.assertEqual(exchange(alone), ("1", None, []))
        self.assertEqual(exchange(shared + " --cp-comm-type p2p", "cp=1"), ("1", None, []))
        self.assertEqual(exchange("", "cp=2", "cp-exchange=ring"), ("2", "ring", []))
        self.assertEqual(exchange("", "cp=2"), ("2", "ring", []))
        self.assertEqual(exchange("--cp-comm-type all_gather", "cp=2"), ("2", "allgather", []))

        windowed = ["--model", "gpt-oss-20b", "--layers", "2", "--cluster", "h100-8"]
        self.assertEqual(exchange(shared + " --cp-comm-type all_gather", model=windowed), ("2", "allgather", []))
        self.assertEqual(exchange(shared, model=windowed + ["--window", "0"]), ("2", "ring", []))
        for text, found in ((shared, "m.sh: found no cp_comm_type, which is p2p by default"),
                            (shared + " \\\n --cp-comm-type p2p", "m.sh:2: --cp-comm-type: found p2p")):
            self.path("m.sh", "--micro-batch-size 1 " + text)
            done = self.run_tune(*windowed, "--nearest", "--current", "./m.sh")
            self.assertEqual((done.returncode, done.stderr),
                             (2, f"moetune: --current: ./{found}, with a sliding window of 128 tokens, which "
                                 "Transformer Engine refuses; expected all_gather, or --window 0\n"))

    def test_layouts_of_files_share_no_samples_unless_they_say_so(self):
        self.path("m.sh", "--micro-batch-size 1 --tensor-model-parallel-size 2")
        for words in (["--cp", 2, "--shape", "auto"], ["--cp-exchange", "ring", "--shape", "auto"]):
            self.assertIn("--cp 1", self.current("./m.sh", *words)["flags"])

    def test_what_no_plan_has_is_refused(self):
        for old, new, said in (
                ("context_parallel_size: 1", "context_parallel_size: 8",
                 ("cp = 8 does not divide ranks of a stage",)),
                ("context_parallel_size: 1", "ulysses_parallel_size: 4", ("y.yaml:8: model.ulysses_parallel_size",)),
                ("layout: null", "layout: Et*3|L", ("y.yaml:13:", "pipeline_model_parallel_layout", "another number")),
                ("method: uniform", "method: block", ("recompute_method", "found 'block'", "uniform")),
                ("ddp: {", "ddp: {use_megatron_fsdp: true, ", ("ddp.use_megatron_fsdp", "shards weights")),
                ("size: 2\n", "size: two\n", ("y.yaml:3:", "found 'two'", "whole number")),
                ("size: 2\n", "size: 2.5\n", ("y.yaml:3:", "found '2.5'", "whole number")),
                ("size: 2\n", "size: 0\n", ("y.yaml:3:", "found '0'")),
                ("size: 2\n", "size: ${TP}\n", ("y.yaml:3:", "found '${TP}'")),
                ("size: 2\n", "size: [2]\n", ("y.yaml:3:", "tensor_model_parallel_size")),
                ("granularity: full", "granularity: some", ("found 'some'", "selective, full or null")),
                ("optimizer: false", "optimizer: 3", ("use_distributed_optimizer", "true or false")),
                ("global_batch_size: 16", "global_batch_size: 15", ("micro-batches of 1 over DP 2", "15")),
                ("granularity: full", "granularity: selective\n  recompute_modules: [core_attn, moe]",
                 ("recompute_modules", "core_attn, layernorm")),
                ("train:", "train: [", ("y.yaml:15: found bad syntax",))):
            self.assertIn(old, BRIDGE)
            self.path("y.yaml", BRIDGE.replace(old, new, 1))
            with self.subTest(new=new):
                self.refuses("./y.yaml", *said)
        for old, new, said in (("devices: 8", "devices: 4", ("1 node x 4 ranks", "1 node x 8")),
                               ("num_nodes: 1", "num_nodes: 2", ("2 nodes x 8 ranks",))):
            self.path("n.yaml", NEMO.replace(old, new))
            self.refuses("./n.yaml", *said)
        for changes, said in (({"zero_optimization": {"stage": 3}}, ("zero_optimization.stage: found '3'", "0 or 1")),
                              ({"sequence_parallel_size": 2}, ("sequence_parallel_size: found '2'",)),
                              ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
                               ("offload_optimizer.device: found 'cpu'",)),
                              ({"expert_parallel": {"autoep_size": 4}}, ("expert_parallel.enabled",)),
                              ({"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}},
                               ("found '4'", "2, as in")),
                              ({"zero_optimization": True}, ("zero_optimization: found 'true'", "its stage")),
                              ({"train_batch_size": 64}, ("2 micro-batches of 1 over DP 8, 16 samples", "64")),
                              ({"train_batch_size": True}, ("train_batch_size: found 'true'", "whole number"))):
            self.path("d.json", json.dumps({**DEEPSPEED, **changes}))
            with self.subTest(changes=changes):
                self.refuses("./d.json", *said)
        for name, text, said in (("x.json", '{"a": 1,\n "b": }', "x.json:2"), ("x.yaml", "a: 1\n", "Megatron-Bridge"),
                                 ("x.json", '{"a": 1}', "of DeepSpeed"), ("x.sh", "echo\n", "Megatron-Core"),
                                 ("x.sh", "--context-parallel-size 0 --micro-batch-size 1", "x.sh:1: --context"),
                                 ("x.sh", "--micro-batch-size 1 --num-layers-per-virtual-pipeline-stage 1",
                                  "--num-layers"),
                                 ("x.sh", "--micro-batch-size 0", "--micro-batch-size: found '0'")):
            self.path(name, text)
            self.refuses("./" + name, said)
        self.path("m.sh", MEGATRON)
        self.refuses("./m.sh,pp=4", "m.sh:3: --num-layers-per-virtual-pipeline-stage", "virtual-stages=N")

    def log(self, form, seconds, end="\n"):
        self.path("train.log", "starting\n" + end.join(form(s, i) for i, s in enumerate(seconds)) + "\n")
        return "train.log"

    def test_steps_of_logs(self):
        draw = random.Random(7)
        samples = 16
        forms = {
            "megatron": (lambda s, i: f" iteration {i}/ 20 | elapsed time per iteration (ms): {s * 1e3:.4f} | "
                                      f"throughput per GPU (TFLOP/s/GPU): 250.0 |", "\n"),
            "nemo lines": (lambda s, i: f"iteration {i}/19 | lr: 1e-6 | train_step_timing in s: {s:.7f} | x: 16", "\n"),
            "nemo bar": (lambda s, i: f"Epoch 0: | {i}/20 [00:01<00:01, train_step_timing in s={s:.7f}]", "\r"),
            "bridge": (lambda s, i: f"Step Time : {s:.7f}s GPU utilization: 410.0MODEL_TFLOP/s/GPU", "\n"),
            "deepspeed pipe": (lambda s, i: f"steps: {i} loss: 2.0 iter time (s): {s:.7f} samples/sec: {16 / s:.3f}",
                               "\n"),
            "deepspeed breakdown": (lambda s, i: f"time (ms) | fwd: {s * 300:.4f} | bwd: {s * 600:.4f} | bwd_inner: "
                                                 f"1.00 | step: {s * 100:.4f}", "\n"),
            "deepspeed rate": (lambda s, i: f"[timer.py:260:stop] epoch=0/micro_step={i}/global_step={i}, "
                                            f"RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec={samples / s:.9f}, "
                                            f"MemAllocated=6.0GB", "\n")}
        predicted_s = self.current(WORDS)["total_s"]
        for name, (form, end) in forms.items():
            steps = [10.0] + [0.2 + 0.001 * draw.random() for _ in range(19)]
            steps[6] = 0.9
            found = self.current(WORDS, "--measured", self.log(form, steps, end))
            with self.subTest(name=name):
                median = statistics.median(steps[1:])
                self.assertAlmostEqual(found["measured_s"], median, delta=2e-6)
                self.assertAlmostEqual(found["ratio"], median / predicted_s, delta=1e-4 * median / predicted_s)
                self.assertEqual(found["measured_steps"], 19)
                self.assertEqual([outlier["step"] for outlier in found["outliers"]], [7])
                self.assertAlmostEqual(found["outliers"][0]["seconds"], 0.9, delta=1e-5)

    def test_gains_are_of_the_predicted_part(self):
        search = ["--shape", "auto"]
        alone = self.current(WORDS, *search)
        measured_s = 1.5 * alone["total_s"]
        found = self.current(WORDS, *search, "--measured", f"{measured_s:.12f}")
        self.assertAlmostEqual(found["ratio"], 1.5, delta=1e-6)
        self.assertEqual(found["steps"], alone["steps"])
        text = self.run_tune(*MODEL, *ALONE, *search, "--current", WORDS, "--measured", f"{measured_s:.12f}").stdout
        saved = [alone["total_s"] - alone["steps"][i]["layout"]["total_s"] for i in (0, -1)]
        first, every = (measured_s / (measured_s - s) for s in saved)
        self.assertIn("1.500x predicted\n", text)
        self.assertRegex(text, rf"stay, change 1 alone saves [\d.]+ m?s \({first:.3f}x\), "
                               rf"all save [\d.]+ m?s \({every:.3f}x\)\n")
        self.assertEqual(found["first"]["flags"], alone["steps"][0]["flags"])
        self.assertAlmostEqual(found["first"]["saved_s"], saved[0], delta=1e-9)
        half = self.current(WORDS, *search, "--measured", f"{alone['total_s'] / 2:.12f}")
        self.assertAlmostEqual(half["first"]["saved_s"], saved[0] / 2, delta=1e-9)
        text = self.run_tune(*MODEL, *ALONE, *search, "--current", WORDS, "--measured", alone["total_s"] / 2).stdout
        self.assertIn("0.500x predicted\n       if the prediction is too slow by one factor, change 1", text)

    def test_only_what_is_predicted_faster_is_offered(self):
        for current in (WORDS, WORDS.replace("recompute=full", "recompute=none"), "tutel:1,mp=1,ep=8,esp=1,batch=2"):
            found = self.current(current, "--shape", "auto", "--measured", 1, search=["--schedule", "ds-moe,tutel"])
            before_s, fits = found["total_s"], found["fits"]
            for step in found["steps"]:
                after_s = step["layout"]["total_s"]
                self.assertTrue(after_s < before_s or (step["layout"]["fits"] and not fits), (current, step))
                before_s, fits = after_s, step["layout"]["fits"]
            self.assertTrue(found["first"] is None or found["first"]["saved_s"] > 0, current)
        best = self.current("ds-moe,mp=1,ep=8,esp=1", "--measured", 1)
        self.assertEqual((best["steps"], best["first"]), ([], None))

    def test_flops_of_a_log(self):
        """Of the four layers of olmoe-1b-7b, by Megatron's formula, which does not count the gate and pads the
        vocabulary to a multiple of 128 TP."""
        def flops(samples, seen=0.5, layers=4, h=2048, f=1024, k=8, seq=4096, words=-(-50304 // 256) * 256):
            attention = 4 * h * h + 2 * seen * seq * h
            return 6 * samples * seq * (layers * (attention + 3 * k * h * f) + h * words)

        predicted_s = self.current(WORDS)["total_s"]
        for seen, scale in ((0.5, 1), (1, 1), (0.5, 1.3)):
            def form(s, i):
                rate = scale * flops(16, seen) / s / 8 / 1e12
                return (f" iteration {i}/ 20 | elapsed time per iteration (ms): {s * 1e3:.4f} | "
                        f"throughput per GPU (TFLOP/s/GPU): {rate:.6f} |")
            log = self.log(form, [9, 0.2, 0.21, 0.19])
            found = self.current(WORDS, "--measured", log)["log_rates"]
            with self.subTest(seen=seen, scale=scale):
                self.assertAlmostEqual(found["log_flops_per_s"] / (scale * flops(16, seen) / 0.2 / 8), 1, delta=1e-4)
                self.assertEqual(found["counts_masked"], seen == 1)
                counted = flops(16, 1 if found["counts_masked"] else 0.5)
                self.assertAlmostEqual(found["predicted_flops_per_s"] / (counted / predicted_s / 8), 1, delta=1e-9)
                self.assertAlmostEqual(found["flops_ratio"] / (scale * flops(16, seen) / counted), 1, delta=1e-4)
            text = self.run_tune(*MODEL, *ALONE, "--current", WORDS, "--measured", log).stdout
            self.assertIn(" TFLOP/s/GPU in the log, ", text)
            self.assertEqual("another model, batch or number of GPUs" in text, scale > 1, text)
        bridge = self.log(lambda s, i: f"Step Time : {s:.7f}s GPU utilization: 410.0MODEL_TFLOP/s/GPU", [9, 0.2, 0.2])
        self.assertAlmostEqual(self.current(WORDS, "--measured", bridge)["log_rates"]["log_flops_per_s"], 410e12)
        both = self.log(lambda s, i: f"Step Time : {s:.7f}s GPU utilization: 410.0MODEL_TFLOP/s/GPU\n"
                        f" iteration {i}/ 20 | elapsed time per iteration (ms): {s * 1e3:.4f} |", [9, 0.2, 0.2])
        self.assertAlmostEqual(self.current(WORDS, "--measured", both)["log_rates"]["log_flops_per_s"], 410e12)
        self.assertIsNone(self.current(WORDS, "--measured", 1)["log_rates"])

    def test_one_trainer_counts_the_memory_of_an_answer(self):
        self.path("m.sh", MEGATRON)
        said = ["--current", "./m.sh", "--schedule", "ds-moe", "--json"]
        of_file = json.loads(self.run_tune(*MODEL, *said).stdout)
        memory = json.loads(self.text("memory", *MODEL, "--framework", "megatron", "--mp", 2, "--pp", 2, "--ep", 4,
                                      "--esp", 1, "--zero", 1, "--recompute", "full", "--batch", 1, "--micro-batches",
                                      4, "--virtual-stages", 2, "--json"))
        [counted] = [e for e in memory["estimates"] if e["activations_model"] == "counted"]
        rows = {row["framework"]: row for row in of_file["frameworks"]}
        for row in (of_file["use"], of_file["current"], rows["megatron"]):
            self.assertAlmostEqual(row["memory_bytes"] / counted["total_bytes"], 1, delta=0.02)
        self.assertEqual(rows["megatron"]["memory_bytes"], of_file["use"]["memory_bytes"])
        self.assertIn("kept as Megatron-Core does", self.run_tune(*MODEL, *said[:-1]).stdout)
        other = json.loads(self.run_tune(*MODEL, *said, "--framework", "moetune").stdout)
        self.assertEqual(other["current"]["memory_bytes"], of_file["current"]["memory_bytes"])
        self.assertNotEqual(other["use"]["memory_bytes"], of_file["use"]["memory_bytes"])
        self.assertRegex(self.run_tune(*MODEL, *said[:-1], "--framework", "moetune").stdout,
                         "YOURS  ds-moe .*, kept as Megatron-Core does: ")

    def cluster(self, name, bytes_of_a_rank):
        text = (ROOT / "configs/clusters/h100-8.toml").read_text()
        lines = [f"memory_bytes = {bytes_of_a_rank:.0f}" if line.startswith("memory_bytes =") else line
                 for line in text.splitlines()]
        self.path(name, "\n".join(lines))
        return ["--model", "olmoe-1b-7b", "--layers", "4", "--cluster", "./" + name]

    def test_a_files_layout_fits_by_its_own_frameworks_rules(self):
        self.path("m.sh", MEGATRON)
        said = ["--current", "./m.sh", "--schedule", "ds-moe", "--json", "--framework", "moetune"]
        whole = json.loads(self.run_tune(*MODEL, *said).stdout)
        own, other = whole["current"]["memory_bytes"], whole["use"]["memory_bytes"]
        self.assertLess(1.01 * other, own)
        found = json.loads(self.run_tune(*self.cluster("between.toml", (own + other) / 2), *said).stdout)
        self.assertEqual((found["use"]["memory_bytes"], found["current"]["memory_bytes"]), (other, own))
        self.assertFalse(found["current"]["fits"])

    def test_what_does_not_fit_a_framework_is_not_exported(self):
        layout = ["--mp", 2, "--ep", 4, "--esp", 1, "--batch", 1, "--micro-batches", 4, "--pipeline", "1f1b",
                  "--schedule", "ds-moe", "--recompute", "full", "--zero", 1]
        answer = json.loads(self.run_tune(*MODEL, *layout, "--json").stdout)
        needed = {row["framework"]: row["memory_bytes"] for row in answer["frameworks"] if row["status"] == "ok"}
        least, most = (side(("megatron", "deepspeed"), key=needed.get) for side in (min, max))
        self.assertLess(1.01 * needed[least], needed[most])
        small = self.cluster("small.toml", (needed[least] + needed[most]) / 2)
        answer = json.loads(self.run_tune(*small, *layout, "--json").stdout)
        [row] = [row for row in answer["frameworks"] if row["framework"] == most]
        self.assertIn("does not fit", row["reason"])
        [case] = [case for case in map(json.loads, self.path_text("r.jsonl").splitlines())
                  if case.get("parameters", {}).get("framework") == most]
        [table] = case["tables"]
        self.assertEqual(table["rows"], [[most]])
        shared = table["columns"][1]
        self.assertEqual((shared["status"], shared["reason"], shared["prediction.fits"]),
                         ("unsupported", row["reason"], "no"))
        for name in (most, *(("megatron-bridge", "nemo") if most == "megatron" else ())):
            error = self.refused("export", name, "r.jsonl")
            for words in ("r.jsonl: found no plan that ", row["reason"], least):
                self.assertIn(words, error)
            self.assertNotIn(f"{most},", error)
        self.assertTrue(self.text("export", least, "r.jsonl"))

    def test_the_next_command_counts_memory_as_the_answer_does(self):
        self.path("m.sh", MEGATRON)
        for words, framework in ((["--framework", "megatron"], "megatron"), (["--framework", "tutel"], "tutel"),
                                 (["--framework", "torchtitan"], "torchtitan"),
                                 (["--current", "./m.sh"], "megatron")):
            layout = ["--ep", 4, "--micro-batches", 2, "--pipeline", "1f1b"] if words[0] == "--framework" else []
            answer = self.run_tune(*MODEL, *layout, *words, "--json")
            use = json.loads(answer.stdout)["use"]
            [command] = re.findall(r"^NEXT +(.*)$", self.run_tune(*MODEL, *layout, *words).stdout, re.MULTILINE)
            self.assertIn(f"--framework {framework}", command)
            words_of = shlex.split(command)
            simulated = json.loads(self.text(*words_of[words_of.index("simulate"):words_of.index("--trace")], "--json"))
            [row] = simulated["schedules"]
            self.assertEqual(row["memory_bytes"], use["memory_bytes"], words)

    def test_layers_of_the_first_and_the_last_stage(self):
        plain = "--pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16 --num-layers 10"
        first, last = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
        embedding, loss = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
        model = ["--model", "olmoe-1b-7b", "--layers", "10", "--cluster", "h100-8"]
        for words, ends in ((f"{first} 3 {last} 1", (3, 1)), (f"{first} 1", (1, 0)), (f"{last} 4", (0, 4)),
                            (f"{embedding} {loss}", (2, 2)),
                            (f"{first} 4 {last} 2 --num-virtual-stages-per-pipeline-rank 2", (4, 2))):
            self.path("m.sh", f"{plain} {words}")
            found = self.current("./m.sh", model=model)
            self.assertEqual((found.get("first_stage_layers", 0), found.get("last_stage_layers", 0)), ends, words)
            self.assertEqual(found["file"]["unplanned"], [])
            said = f"ds-moe,pp=4,first-stage-layers={ends[0]},last-stage-layers={ends[1]},batch=1,global-batch=16," \
                   f"mp=1,ep=1,esp=1,zero=0,recompute=selective,pipeline=1f1b,virtual-stages={1 + ('virtual' in words)}"
            self.assertEqual(found["flags"], self.current(said, model=model)["flags"], words)
        for words, layers in ((embedding, "11"), (loss, "11"), (f"{embedding} {loss}", "10")):
            self.path("m.sh", f"{plain} {words}".replace("layers 10", f"layers {layers}"))
            found = self.current("./m.sh", model=model[:3] + [layers] + model[4:])
            each = (int(layers) + len(words.split())) // 4 - 1
            self.assertEqual((found.get("first_stage_layers", 0), found.get("last_stage_layers", 0)),
                             (each if embedding in words else 0, each if loss in words else 0))
        self.path("b.yaml", BRIDGE.replace("  virtual_pipeline_model_parallel_size: 2\n",
                                           "  num_layers_in_first_pipeline_stage: 3\n"))
        self.assertEqual(self.current("./b.yaml")["first_stage_layers"], 3)
        self.path("n.yaml", NEMO.replace("    virtual_pipeline_model_parallel_size: 2\n", "").replace(
            "{config: {", "{config: {num_layers_in_last_pipeline_stage: 1, "))
        self.assertEqual(self.current("./n.yaml")["last_stage_layers"], 1)
        for words, said in ((f"{embedding} --num-virtual-stages-per-pipeline-rank 2", "false with virtual stages"),
                            (embedding, "--num-layers: found '10', expected a number that makes 11"),
                            (f"{first} 8", "first-stage-layers: found 8 of 10 layers over 4 stages"),
                            (f"{first} 0", "whole number from 1 on"),
                            (f"{first} 3 --num-virtual-stages-per-pipeline-rank 2",
                             "found 2 with 3 layers on stage 0")):
            self.path("m.sh", f"{plain} {words}")
            done = self.run_tune(*model, "--current", "./m.sh")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), (words, done.stderr))
            self.assertIn(said, done.stderr)

    def test_exports_say_uneven_stages(self):
        draw = random.Random(11)
        model = ["--model", "olmoe-1b-7b", "--layers", "13", "--cluster", "h100-8", "--nearest"]
        for _ in range(4):
            pp = draw.choice([2, 4])
            last = draw.randint(1, 3)
            first = 13 - last if pp == 2 else 13 - last - 2 * draw.randint(1, 4)
            plan = {"mp": 1, "ep": 2, "esp": 1, "pp": pp, "batch": 1, "micro-batches": 4, "pipeline": "1f1b",
                    "zero": 1, "recompute": "full", "first-stage-layers": first, "last-stage-layers": last}
            flags = [word for name, value in plan.items() for word in ("--" + name, value)]
            self.text("tune", "--no-verify", *model, *ALONE, *flags, "--out", "s.jsonl", "--overwrite")
            wanted = self.current("ds-moe," + ",".join(f"{name}={value}" for name, value in plan.items()),
                                  model=model)
            for name, file in (("megatron", "m.sh"), ("megatron-bridge", "b.yaml"), ("nemo", "n.yaml")):
                self.path(file, self.text("export", name, "s.jsonl"))
                self.assertEqual(self.current("./" + file, model=model)["flags"], wanted["flags"], (name, plan))

    def test_frameworks_keep_what_words_say(self):
        done = self.run_tune("--model", "gpt2-xl", "--cluster", "testbed-b", "--nearest", "--current",
                             "tutel:2:2,recompute=full,zero=0")
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = [json.loads(line) for line in self.path_text("r.jsonl").splitlines()]
        cases = [case for case in cases if case.get("key", "").startswith("framework/")]
        self.assertGreater(len(cases), 1)
        for case in cases:
            self.assertEqual((case["parameters"]["recompute"], case["parameters"].get("zero", 0)), ("full", 0), case)

    def test_what_is_no_log_is_refused(self):
        self.path("empty.log", "nothing\n")
        self.path("bad.log", "elapsed time per iteration (ms): nan\n")
        for measured, said in (("empty.log", "expected the log of a training: megatron, nemo, "),
                               ("bad.log", "--measured"), ("absent.log", "absent.log"), ("-1", "--measured"),
                               ("0", "--measured"), ("", "--measured")):
            self.refuses("tutel", said, words=["--measured", measured])
        done = self.run_tune(*MODEL, "--measured", "1")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("--current", done.stderr)


if __name__ == "__main__":
    main()
