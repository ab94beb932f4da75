"""usage: settings_test.py PROGRAM

Settings of frameworks: what is exported is the best schedule that the framework runs, by the records' own times."""
import json
import shlex

from program import LAYER, ProgramTest, main, measured, records

SCHEDULES = [measured("ds-moe", (1, 1), 0.012), measured("tutel", (4, 4), 0.010), measured("fsmoe", (3, 2), 0.008),
             measured("fsmoe-no-partition", (5, 3), 0.009)]
SAMPLES = LAYER["batch"] * LAYER["dp"]


def flags_of(text):
    """The bash array's flags, and its comments."""
    lines = text.splitlines()
    begin, end = lines.index("MOE_ARGS=("), lines.index(")")
    flags = {}
    for line in lines[begin + 1:end]:
        words = shlex.split(line)
        flags[words[0]] = words[1] if len(words) > 1 else None
    return flags, [line for line in lines[:begin] if line.startswith("# ")]


class Settings(ProgramTest):
    def export(self, framework, *cases, more=()):
        return self.text("export", framework, records(self.folder / "r.jsonl", *cases), *more)

    def test_tutel_has_its_own_degree_and_says_what_it_loses(self):
        document = json.loads(self.export("tutel", *SCHEDULES))
        self.assertEqual(document["call"], "tutel.moe.moe_layer")
        arguments = document["arguments"]
        self.assertEqual(arguments["a2a_ffn_overlap_degree"], 4)
        self.assertEqual(arguments["gate_type"], {"type": "top", "k": 2, "capacity_factor": 1.2})
        self.assertEqual(arguments["model_dim"], 2048)
        self.assertEqual(arguments["experts"]["hidden_size_per_expert"], 8192)
        self.assertEqual(arguments["experts"]["num_experts_per_device"], -4, "four devices share an expert")
        self.assertEqual(document["fastest"]["schedule"], "fsmoe")
        self.assertIn("1.250 times", " ".join(document["comment"]))

    def test_tutel_takes_degree_1_from_deepspeed_where_that_is_faster(self):
        document = json.loads(self.export("tutel", measured("ds-moe", (1, 1), 0.009), *SCHEDULES[1:]))
        self.assertEqual(document["arguments"]["a2a_ffn_overlap_degree"], 1)

    def test_says_nothing_of_a_loss_where_there_is_none(self):
        document = json.loads(self.export("tutel", *SCHEDULES[:2]))
        self.assertNotIn("times as long", " ".join(document["comment"]))

    def test_dropless_is_capacity_0_of_tutel(self):
        document = json.loads(self.export("tutel", measured("tutel", (2, 2), 0.01, capacity_factor="none")))
        self.assertEqual(document["arguments"]["gate_type"]["capacity_factor"], 0)

    def test_deepspeed(self):
        document = json.loads(self.export("deepspeed", *SCHEDULES))
        arguments = document["arguments"]
        self.assertEqual((arguments["hidden_size"], arguments["num_experts"], arguments["ep_size"], arguments["k"]),
                         (2048, 8, 8, 2))
        self.assertTrue(arguments["drop_tokens"])
        self.assertTrue(arguments["enable_expert_tensor_parallelism"])
        self.assertIn("1.500 times", " ".join(document["comment"]))

    def test_deepspeeds_autoep_stands_beside_its_layer(self):
        document = json.loads(self.export("deepspeed", *SCHEDULES))
        self.assertEqual(document["call"], "deepspeed.moe.layer.MoE")
        self.assertEqual(document["config"],
                         {"expert_parallel": {"enabled": True, "autoep_size": 8}, "tensor_parallel": {"autotp_size": 4},
                          "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
                          "train_batch_size": SAMPLES})
        said = [line for line in document["comment"] if line.startswith("config: ")]
        for words in ("DeepSpeed 0.19.2, Transformers 5", "drops no token", "whole experts on a rank, not shards of 4",
                      "beside tensor parallelism, here of 4"):
            self.assertEqual(len([line for line in said if words in line]), 1, (words, said))
        plain = measured("ds-moe", (1, 1), 0.01, mp=1, esp=1, dp=32, edp=4, zero=1, capacity_factor="none")
        document = json.loads(self.export("deepspeed", plain))
        self.assertEqual(document["config"]["zero_optimization"], {"stage": 1})
        self.assertEqual(len([line for line in document["comment"] if line.startswith("config: ")]), 1)

    def test_fsmoe_takes_the_schedule_that_the_published_layer_runs(self):
        flags, comments = flags_of(self.export("fsmoe", *SCHEDULES))
        self.assertEqual((flags["--pipeline-degree"], flags["--bp-pipeline-degree"]), ("5", "3"))
        self.assertEqual(flags["--moe-expert-capacity-factor"], "1.2")
        self.assertIn("1.125 times", " ".join(comments))

    def test_fsmoe_without_that_one_takes_fsmoe_and_says_so(self):
        flags, comments = flags_of(self.export("fsmoe", *SCHEDULES[:3]))
        self.assertEqual((flags["--pipeline-degree"], flags["--bp-pipeline-degree"]), ("3", "2"))
        self.assertIn("runs this plan except for the gradients", " ".join(comments))

    def test_megatron(self):
        flags, comments = flags_of(self.export("megatron", *SCHEDULES))
        for flag, value in {"--num-experts": "8", "--expert-model-parallel-size": "8", "--moe-router-topk": "2",
                            "--expert-tensor-parallel-size": "4", "--tensor-model-parallel-size": "4",
                            "--moe-token-dispatcher-type": "alltoall", "--moe-expert-capacity-factor": "1.2",
                            "--moe-ffn-hidden-size": "8192"}.items():
            self.assertEqual(flags[flag], value, flag)
        self.assertIn("--sequence-parallel", flags)
        self.assertIn("--moe-pad-expert-input-to-capacity", flags)
        self.assertIn("fastest measured: fsmoe", " ".join(comments))
        dropless, _ = flags_of(self.export("megatron", measured("ds-moe", (1, 1), 0.01, capacity_factor="none")))
        self.assertNotIn("--moe-expert-capacity-factor", dropless)

    def test_a_model_has_its_layers_and_its_global_batch(self):
        flags, _ = flags_of(self.export("megatron", SCHEDULES[0]))
        self.assertNotIn("--num-layers", flags)
        self.assertEqual(int(flags["--global-batch-size"]), SAMPLES)
        for framework, schedule in (("megatron", "ds-moe"), ("fsmoe", "fsmoe")):
            case = measured(schedule, (1, 1), 0.01, layers=24, micro_batches=3, pipeline="gpipe")
            tried, comments = flags_of(self.export(framework, case))
            self.assertNotIn("--num-layers", tried, "a run may be of some layers")
            self.assertIn("Megatron-Core refuses gpipe: its order of micro-batches is 1F1B", " ".join(comments))
            case["key"], case["prediction"] = case["key"].replace("run/", "plan/"), {"total_s": 0.01}
            case["summary"] = {}
            flags, _ = flags_of(self.export(framework, case))
            self.assertEqual((flags["--num-layers"], int(flags["--global-batch-size"])), ("24", 3 * SAMPLES))

    def test_what_a_rank_does_not_keep_is_a_flag_or_a_comment(self):
        case = measured("ds-moe", (1, 1), 0.01, zero=1, recompute="selective")
        flags, _ = flags_of(self.export("megatron", case))
        self.assertIn("--use-distributed-optimizer", flags)
        self.assertEqual(flags["--recompute-granularity"], "selective")
        for framework in ("tutel", "deepspeed"):
            self.assertIn("planned with ZeRO 1, scores recomputed", self.export(framework, case))

    def test_rotary_positions_are_flags_where_the_layer_has_them(self):
        flags, _ = flags_of(self.export("megatron", measured("ds-moe", (1, 1), 0.01, rope_theta=1e6)))
        self.assertEqual((flags["--position-embedding-type"], flags["--rotary-base"]), ("rope", "1000000"))
        self.assertNotIn("--rotary-base", flags_of(self.export("megatron", SCHEDULES[0]))[0])

    def test_a_shared_expert_is_a_flag_or_a_comment(self):
        case = measured("ds-moe", (1, 1), 0.01, shared_hidden=512)
        flags, _ = flags_of(self.export("megatron", case))
        self.assertEqual(flags["--moe-shared-expert-intermediate-size"], "512")
        self.assertNotIn("shared expert", " ".join(flags_of(self.export("megatron", SCHEDULES[0]))[1]))
        for framework in ("tutel", "deepspeed"):
            self.assertIn("shared expert: a module of your own, 2048 -> 512 -> 2048", self.export(framework, case))

    def test_megatron_weighs_one_expert_by_its_probability(self):
        for gate, k, expected in (("gshard", 2, False), ("gshard", 1, True), ("switch", 1, True), ("switch", 2, True),
                                  ("sigmoid", 1, False), ("topk", 2, False), ("topk", 1, True)):
            flags, comments = flags_of(self.export("megatron", measured("ds-moe", (1, 1), 0.01, gate=gate, top_k=k)))
            self.assertEqual("--moe-router-pre-softmax" in flags, expected, (gate, k))
            self.assertEqual(f"{gate} weighs the one expert" in " ".join(comments),
                             k == 1 and gate in ("gshard", "topk"))

    def test_one_plan_is_no_loss_whatever_it_was_planned_for(self):
        plan, own = measured("ds-moe", (1, 1), 0.01), measured("ds-moe", (1, 1), 0.01, framework="megatron")
        for case, key in ((plan, "plan/a/ds-moe"), (own, "framework/megatron/a/ds-moe")):
            case["key"], case["prediction"], case["summary"] = key, {"total_s": 0.01}, {}
        self.assertNotIn("times as long", self.export("megatron", plan, own))
        own["parameters"]["batch"], own["prediction"] = 2, {"total_s": 0.02}
        self.assertIn("2.000 times as long", self.export("megatron", plan, own))

    def test_gates_of_published_models_have_no_noise(self):
        for gate, noisy in (("gshard", True), ("topk", False), ("switch", False), ("sigmoid", False)):
            text = self.export("megatron", measured("ds-moe", (1, 1), 0.01, gate=gate))
            self.assertEqual("learned noise" in text, noisy, gate)

    def test_a_name_of_several_lines_stays_a_comment(self):
        text = self.export("megatron", measured("ds-moe", (1, 1), 0.01, layer="a\ntouch gone\r"))
        self.assertEqual([line for line in text.splitlines() if "touch" in line], ["# a?touch gone?"])

    def test_what_no_setting_says_is_a_comment(self):
        case = measured("ds-moe", (1, 1), 0.01, norm="none", residual="no", hook="bf16")
        for framework in ("megatron", "tutel", "deepspeed"):
            text = self.export(framework, case)
            for what in ("layers without a norm", "layers without a residual connection", "the hook bf16"):
                self.assertIn(f" has no setting for {what}", text, framework)

    def test_biases_and_encoders_are_flags_or_comments(self):
        self.assertIn("--disable-bias-linear", flags_of(self.export("megatron", SCHEDULES[0]))[0])
        case = measured("ds-moe", (1, 1), 0.01, bias="yes", causal="no", norm="post-layernorm")
        for framework in ("megatron", "tutel", "deepspeed"):
            text = self.export(framework, case)
            for what in ("norms after the residual sums", "attention without a causal mask"):
                self.assertIn(f" has no setting for {what}", text, framework)
        self.assertNotIn("--disable-bias-linear", flags_of(self.export("megatron", case))[0])
        for has, of in ((True, case), (False, SCHEDULES[0])):
            experts = json.loads(self.export("tutel", of))["arguments"]["experts"]
            self.assertEqual((experts["has_fc1_bias"], experts["has_fc2_bias"]), (has, has))
            self.assertEqual("with biases" in self.export("deepspeed", of), has)

    def test_dense_layers_and_limits_of_nodes_are_flags_or_comments(self):
        case = measured("ds-moe", (1, 1), 0.01, layers=6, dense_layers=3, dense_hidden=18432, moe_layers="001101",
                        node_limit=3, top_k=4, experts=16, gate="sigmoid")
        text = self.export("megatron", case)
        flags, comments = flags_of(text)
        self.assertEqual((flags["--ffn-hidden-size"], flags["--moe-ffn-hidden-size"]), ("18432", "8192"))
        self.assertIn('--moe-layer-freq "([0]*2+[1]*2+[0]*1+[1]*1)"', text)
        self.assertEqual([int(layer) for layer in case["parameters"]["moe_layers"]],
                         eval(flags["--moe-layer-freq"], {"__builtins__": {}}))
        self.assertEqual((flags["--moe-router-num-groups"], flags["--moe-router-group-topk"]), ("8", "3"))
        loose = measured("ds-moe", (1, 1), 0.01, node_limit=3)  # of two experts: no limit
        self.assertNotIn("--moe-router-num-groups", flags_of(self.export("megatron", loose))[0])
        for framework in ("tutel", "deepspeed"):
            comment = self.export(framework, case)
            self.assertIn("dense layers of 18432 hidden units", comment)
            self.assertIn("a limit of 3 nodes for the experts of a token", comment)
        del case["parameters"]["moe_layers"]
        self.assertIn("set --moe-layer-freq yourself", " ".join(flags_of(self.export("megatron", case))[1]))
        case["parameters"]["moe_layers"] = "01; touch gone"
        self.assertIn("moe_layers: found '01; touch gone'",
                      self.refused("export", "megatron", records(self.folder / "r.jsonl", case)))

    def test_an_impossible_shape_names_its_line(self):
        path = records(self.folder / "r.jsonl", measured("tutel", (2, 2), 0.01, experts=7))
        for words in (["tutel", path], ["plan", path]):
            self.assertIn("r.jsonl:2: ", self.refused("export", *words))

    def test_measured_decides_before_predicted(self):
        fast = measured("tutel", (2, 2), 0)
        fast["key"] = "plan/a/tutel"
        fast["summary"], fast["prediction"] = {}, {"total_s": 0.001, "gar_in_moe_bytes": 0}
        document = json.loads(self.export("tutel", *SCHEDULES, fast))
        self.assertEqual(document["total_s"], 0.010)
        document = json.loads(self.export("tutel", SCHEDULES[2], fast))
        self.assertEqual(document["total_s"], 0.001, "no measured one is Tutel's")
        self.assertIn("predicted", document["comment"][0])

    def test_several_layers_need_a_name(self):
        other = measured("tutel", (8, 8), 0.02, layer="b")
        path = records(self.folder / "r.jsonl", *SCHEDULES, other)
        self.assertIn("--only: found none and 2 layers", self.refused("export", "tutel", path))
        self.assertIn("--only: found 'c'", self.refused("export", "tutel", path, "--only", "c"))
        document = json.loads(self.text("export", "tutel", path, "--only", "b"))
        self.assertEqual(document["arguments"]["a2a_ffn_overlap_degree"], 8)

    def test_no_schedule_of_the_framework_is_refused(self):
        path = records(self.folder / "r.jsonl", SCHEDULES[2], measured("ds-moe", (1, 1), 0, status="oom"))
        self.assertIn("expected one of: ds-moe", self.refused("export", "megatron", path))


if __name__ == "__main__":
    main()
