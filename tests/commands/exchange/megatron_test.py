"""usage: megatron_test.py PROGRAM

Flags of every preset model, against what Megatron-LM's parser knows and what Megatron-Core asserts of them.

Read in Megatron-LM's sources, releases core_v0.15.0 to core_v0.19.0: megatron/training/arguments.py,
megatron/core/transformer/transformer_config.py and megatron/core/tensor_parallel/mappings.py."""
import json
import shlex

from program import ROOT, ProgramTest, main, measured, records

INTEGER, REAL, TEXT, SWITCH = int, float, str, None
FLAGS = {
    "--num-layers": INTEGER, "--hidden-size": INTEGER, "--ffn-hidden-size": INTEGER, "--num-attention-heads": INTEGER,
    "--multi-latent-attention": SWITCH, "--q-lora-rank": INTEGER, "--kv-lora-rank": INTEGER, "--qk-head-dim": INTEGER,
    "--qk-pos-emb-head-dim": INTEGER, "--v-head-dim": INTEGER, "--rope-type": TEXT,
    "--kv-channels": INTEGER, "--group-query-attention": SWITCH, "--num-query-groups": INTEGER,
    "--position-embedding-type": TEXT, "--rotary-base": INTEGER, "--vocab-size": INTEGER,
    "--untie-embeddings-and-output-weights": SWITCH, "--qk-layernorm": SWITCH, "--seq-length": INTEGER,
    "--max-position-embeddings": INTEGER, "--micro-batch-size": INTEGER, "--global-batch-size": INTEGER,
    "--normalization": TEXT, "--disable-bias-linear": SWITCH, "--attention-dropout": REAL, "--hidden-dropout": REAL,
    "--swiglu": SWITCH, "--bf16": SWITCH, "--tensor-model-parallel-size": INTEGER, "--sequence-parallel": SWITCH,
    "--pipeline-model-parallel-size": INTEGER, "--expert-model-parallel-size": INTEGER, "--moe-layer-freq": TEXT,
    "--expert-tensor-parallel-size": INTEGER, "--moe-ffn-hidden-size": INTEGER,
    "--moe-shared-expert-intermediate-size": INTEGER, "--num-experts": INTEGER, "--moe-router-topk": INTEGER,
    "--moe-router-load-balancing-type": TEXT, "--moe-aux-loss-coeff": REAL, "--moe-z-loss-coeff": REAL,
    "--moe-token-dispatcher-type": TEXT, "--moe-expert-capacity-factor": REAL,
    "--moe-pad-expert-input-to-capacity": SWITCH, "--moe-router-pre-softmax": SWITCH,
    "--moe-router-score-function": TEXT, "--moe-router-num-groups": INTEGER, "--moe-router-group-topk": INTEGER,
    "--num-virtual-stages-per-pipeline-rank": INTEGER, "--moe-grouped-gemm": SWITCH,
    "--decoder-first-pipeline-num-layers": INTEGER, "--decoder-last-pipeline-num-layers": INTEGER,
    "--use-distributed-optimizer": SWITCH, "--recompute-granularity": TEXT,
    "--overlap-moe-expert-parallel-comm": SWITCH, "--delay-wgrad-compute": SWITCH, "--window-size": TEXT,
    "--window-attn-skip-freq": TEXT, "--softmax-type": TEXT, "--attention-output-gate": SWITCH,
    "--rotary-percent": REAL, "--add-qkv-bias": SWITCH, "--quick-geglu": SWITCH, "--glu-linear-offset": REAL,
    "--activation-func-clamp-value": REAL, "--mtp-num-layers": INTEGER, "--moe-shared-expert-gate": SWITCH,
    "--moe-router-topk-scaling-factor": REAL, "--moe-router-enable-expert-bias": SWITCH}

ENDS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")


def own_ends(f):
    """Layers of the first and the last stage, as far as they have numbers of their own."""
    return [f(flag) for flag in ENDS if flag in f.flags]


def between(f):
    """Layers of each other stage, before what is left over."""
    ends = own_ends(f)
    stages, layers = f("--pipeline-model-parallel-size") - len(ends), f("--num-layers") - sum(ends)
    return [layers // stages + (stage < layers % stages) for stage in range(stages)] or [0] * (1 + (layers > 0))


# What is asserted; flags that are absent are 1, or what `default` says. The words are those of a comment, where the
# shape breaks it; without words no exported shape may.
ASSERTED = [
    ("attention heads", lambda f: f("--num-attention-heads") % f("--tensor-model-parallel-size") == 0),
    # Until 0.15; from 0.16 on the groups may divide TP too.
    ("key-value heads", lambda f: f("--num-query-groups", 0) % f("--tensor-model-parallel-size") == 0),
    ("tokens a sample", lambda f: f("--seq-length") % f("--tensor-model-parallel-size") == 0),
    ("layers over PP", lambda f: own_ends(f) or f("--num-layers", 0) % f("--pipeline-model-parallel-size") == 0),
    ("layers over the other stages", lambda f: not own_ends(f) or len(set(between(f))) == 1),
    ("", lambda f: own_ends(f) or f("--num-layers", 0) % (f("--pipeline-model-parallel-size") *
                                                          f("--num-virtual-stages-per-pipeline-rank")) == 0 or
     "--num-virtual-stages-per-pipeline-rank" not in f.flags),
    ("", lambda f: not own_ends(f) or all(layers % f("--num-virtual-stages-per-pipeline-rank") == 0
                                          for layers in own_ends(f) + between(f))),
    ("experts with biases", lambda f: "--disable-bias-linear" in f.flags or f("--expert-tensor-parallel-size") == 1),
    ("router groups", lambda f: f("--num-experts") % f("--moe-router-num-groups") == 0),
    ("", lambda f: "--kv-channels" in f.flags or f("--hidden-size") % f("--num-attention-heads") == 0 or
     "--multi-latent-attention" in f.flags),
    ("", lambda f: "--multi-latent-attention" not in f.flags or "--group-query-attention" not in f.flags),
    ("", lambda f: f("--num-experts") % f("--expert-model-parallel-size") == 0),
    ("", lambda f: f("--moe-ffn-hidden-size") % f("--expert-tensor-parallel-size") == 0),
    ("", lambda f: f("--max-position-embeddings") >= f("--seq-length")),
    ("", lambda f: f("--moe-router-group-topk") <= f("--moe-router-num-groups")),
    ("", lambda f: "--moe-grouped-gemm" not in f.flags or "--bf16" in f.flags),  # until 0.15
    ("", lambda f: f("--moe-router-topk") > 1 or "--moe-router-pre-softmax" in f.flags or
     f.flags.get("--moe-router-score-function") == "sigmoid"),
    ("", lambda f: "--moe-pad-expert-input-to-capacity" not in f.flags or "--moe-expert-capacity-factor" in f.flags)]

# Of the published configs: layers, width, heads, key-value heads, width of a head, vocabulary; tied, norm of queries
# and keys, base of rotary positions.
CARDS = {
    "mixtral-7b": (32, 4096, 32, 8, 128, 32000, False, False, 1000000),
    "mixtral-22b": (56, 6144, 48, 8, 128, 32768, False, False, 1000000),
    "qwen3-30b-a3b": (48, 2048, 32, 4, 128, 151936, False, True, 1000000),
    "qwen3-235b-a22b": (94, 4096, 64, 4, 128, 151936, False, True, 1000000),
    "gpt-oss-20b": (24, 2880, 64, 8, 64, 201088, False, False, 150000),
    "gpt-oss-120b": (36, 2880, 64, 8, 64, 201088, False, False, 150000),
    "olmoe-1b-7b": (16, 2048, 16, 16, 128, 50304, False, True, 10000),
    "gpt2-xl": (48, 1600, 25, 25, 64, 50257, True, False, None)}


# Of the published configs: ranks of queries and of keys and values; widths of a head, without and with positions, and
# of values; base of rotary positions.
LATENT = {"deepseek-v3": (1536, 512, 128, 64, 128, 10000), "kimi-k2": (1536, 512, 128, 64, 128, 50000)}


# Published configs, shortened, with the keys that define their routers and what plans leave out of them.
QWEN = {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 64,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144, "decoder_sparse_step": 1,
        "num_hidden_layers": 4, "vocab_size": 151936, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
        "tie_word_embeddings": False, "max_position_embeddings": 4096}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 1024, "num_attention_heads": 16, "q_lora_rank": 256,
            "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
            "intermediate_size": 2048, "moe_intermediate_size": 512, "first_k_dense_replace": 1, "n_routed_experts": 64,
            "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "norm_topk_prob": True,
            "num_hidden_layers": 4, "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5,
            "topk_method": "noaux_tc", "scoring_func": "sigmoid", "aux_loss_alpha": 0.001, "seq_aux": True,
            "vocab_size": 129280, "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40},
            "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
GLM = {"model_type": "glm4_moe", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
       "head_dim": 64, "attention_bias": True, "partial_rotary_factor": 0.5, "intermediate_size": 2048,
       "moe_intermediate_size": 512, "first_k_dense_replace": 1, "n_routed_experts": 32, "num_experts_per_tok": 8,
       "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
       "num_hidden_layers": 4, "vocab_size": 151552, "rope_theta": 1000000, "use_qk_norm": True,
       "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
GPT_OSS = {"model_type": "gpt_oss", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
           "head_dim": 64, "attention_bias": True, "intermediate_size": 1024, "num_local_experts": 32,
           "num_experts_per_tok": 4, "num_hidden_layers": 4, "router_aux_loss_coef": 0.9, "sliding_window": 128,
           "layer_types": ["sliding_attention", "full_attention"] * 2, "swiglu_limit": 7.0, "vocab_size": 201088,
           "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
# Flags that a config's export has, with their values; flags that it has not; words of its comments.
DEFINED = [
    ({**QWEN, "model_type": "qwen3_moe", "norm_topk_prob": True, "router_aux_loss_coef": 0.001},
     {"--moe-router-load-balancing-type": "aux_loss", "--moe-aux-loss-coeff": "0.001", "--qk-layernorm": None,
      "--disable-bias-linear": None, "--swiglu": None},
     ["--moe-router-pre-softmax", "--moe-router-score-function", "--add-qkv-bias", "--rotary-percent"], []),
    ({**QWEN, "model_type": "qwen2_moe", "norm_topk_prob": False, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 1024},
     {"--moe-router-pre-softmax": None, "--add-qkv-bias": None, "--disable-bias-linear": None,
      "--moe-shared-expert-gate": None, "--moe-shared-expert-intermediate-size": "1024"}, ["--qk-layernorm"],
     ["times here leave that gate out"]),
    (DEEPSEEK,
     {"--moe-router-num-groups": "8", "--moe-router-group-topk": "4", "--moe-router-topk-scaling-factor": "2.5",
      "--moe-router-enable-expert-bias": None, "--moe-router-score-function": "sigmoid", "--mtp-num-layers": "1",
      "--moe-router-load-balancing-type": "seq_aux_loss", "--moe-aux-loss-coeff": "0.001"},
     ["--moe-router-pre-softmax"],
     ["times and memory here leave these modules out", "rope_scaling is yarn, factor 40"]),
    ({**DEEPSEEK, "norm_topk_prob": False, "n_group": 1, "topk_group": 1}, {"--moe-router-score-function": "sigmoid"},
     ["--moe-router-num-groups"], ["norm_topk_prob is false"]),
    (GLM, {"--rotary-percent": "0.5", "--add-qkv-bias": None, "--moe-router-load-balancing-type": "none",
           "--moe-router-enable-expert-bias": None, "--moe-router-topk-scaling-factor": "2.5"},
     ["--moe-router-num-groups", "--moe-aux-loss-coeff"], []),
    (GPT_OSS,
     {"--window-size": "127,0", "--window-attn-skip-freq": "2", "--softmax-type": "learnable",
      "--quick-geglu": None, "--glu-linear-offset": "1", "--activation-func-clamp-value": "7",
      "--moe-aux-loss-coeff": "0.9"},
     ["--disable-bias-linear", "--add-qkv-bias", "--swiglu", "--moe-router-pre-softmax"],
     ["attention sinks, which times here leave out"]),
    ({**GPT_OSS, "layer_types": ["sliding_attention"] + ["full_attention"] * 3},
     {"--window-attn-skip-freq": "([1]*1+[0]*3)"}, [], []),
    ({**QWEN, "model_type": "qwen3_next", "full_attention_interval": 4, "norm_topk_prob": True,
      "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
      "linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25},
     {"--attention-output-gate": None, "--rotary-percent": "0.25", "--moe-router-load-balancing-type": "none"}, [],
     ["the model has gated DeltaNet in 3 of 4 layers: planned and written as attention",
      "set --moe-router-load-balancing-type yourself"])]


class Exported:
    """The flags of a bash array, and its comments."""

    def __init__(self, text):
        lines = text.splitlines()
        begin, end = lines.index("MOE_ARGS=("), lines.index(")")
        self.flags = {}
        for line in lines[begin + 1:end]:
            words = shlex.split(line)
            self.flags[words[0]] = words[1] if len(words) > 1 else None
        self.refusals = [line for line in lines[:begin] if "Megatron-Core refuses" in line]
        self.comments = " ".join(lines[:begin])

    def __call__(self, flag, default=1):
        return int(self.flags[flag]) if flag in self.flags else default


class Megatron(ProgramTest):
    def exported(self, path):
        return Exported(self.text("export", "megatron", path))

    def check(self, exported, what):
        for flag, value in exported.flags.items():
            self.assertIn(flag, FLAGS, what)
            self.assertEqual(value is None, FLAGS[flag] is SWITCH, (what, flag))
            if value is not None:
                FLAGS[flag](value)
        broken = [words for words, holds in ASSERTED if not holds(exported)]
        self.assertNotIn("", broken, (what, exported.flags))
        self.assertEqual(len(exported.refusals), len(broken), (what, exported.refusals, broken))
        for words in broken:
            self.assertTrue(any(words in line for line in exported.refusals), (what, words, exported.refusals))

    def test_every_preset_model(self):
        cluster = (ROOT / "configs/clusters/testbed-b.toml").read_text().splitlines()
        large = self.folder / "large.toml"
        large.write_text("\n".join(line for line in cluster if not line.startswith("memory_bytes")))
        models = sorted(path.stem for path in (ROOT / "configs/models").glob("*.toml"))
        self.assertLessEqual(set(CARDS), set(models))
        for model in models:
            path = self.folder / f"{model}.jsonl"
            layers = ["--layers", "8"] if model == "deepseek-v3" else []
            self.text("tune", "--no-verify", "--model", model, "--cluster", str(large), "--schedule", "ds-moe",
                      "--dtype", "float32", "--nearest", "-o", str(path), *layers)
            exported = self.exported(str(path))
            self.check(exported, model)
            self.assertEqual("--multi-latent-attention" in exported.flags, model in LATENT, model)
            if model in LATENT:
                self.check_latent(exported, model)
            if model in CARDS:
                self.check_card(exported, *CARDS[model], model)

    def check_latent(self, f, what):
        self.assertEqual((f("--q-lora-rank"), f("--kv-lora-rank"), f("--qk-head-dim"), f("--qk-pos-emb-head-dim"),
                          f("--v-head-dim"), f("--rotary-base")), LATENT[what], what)
        self.assertLessEqual({"--multi-latent-attention", "--qk-layernorm"}, set(f.flags), what)
        self.assertEqual(f.flags["--rope-type"], "rope", what)
        self.assertNotIn("--kv-channels", f.flags, what)

    def check_card(self, f, layers, width, heads, kv_heads, head_width, words, tied, qk_norm, base, what):
        self.assertEqual((f("--num-layers"), f("--hidden-size"), f("--num-attention-heads"),
                          f("--num-query-groups", heads), f("--kv-channels"), f("--vocab-size")),
                         (layers, width, heads, kv_heads, head_width, words), what)
        self.assertEqual("--untie-embeddings-and-output-weights" in f.flags, not tied, what)
        self.assertEqual("--qk-layernorm" in f.flags, qk_norm, what)
        self.assertEqual("leave that norm out" in f.comments, qk_norm, what)
        self.assertEqual(f("--rotary-base", None), base, what)
        self.assertEqual(f.flags["--position-embedding-type"], "rope" if base else "learned_absolute", what)
        self.assertEqual("pads the vocabulary" in f.comments, words % (128 * f("--tensor-model-parallel-size")) != 0)

    def test_shapes_that_it_refuses_have_a_comment(self):
        odd = {"heads": 18, "kv_heads": 18, "model_dim": 2304}
        for changed, said in (({"kv_heads": 2}, "2 key-value heads over TP 4, before release 0.16"),
                              ({"heads": 12, "kv_heads": 6, "head_dim": 128}, "6 key-value heads over TP 4"),
                              ({**odd}, "18 attention heads over TP 4"),
                              ({"seq": 1022, "batch": 2}, "1022 tokens a sample with --sequence-parallel over TP 4"),
                              ({"bias": "yes"}, "experts with biases over ETP 4")):
            exported = self.exported(records(self.folder / "r.jsonl", measured("ds-moe", (1, 1), 0.01, **changed)))
            self.check(exported, changed)
            self.assertTrue(any(line.endswith(f"Megatron-Core refuses {said}") for line in exported.refusals),
                            exported.refusals)
        case = measured("ds-moe", (1, 1), 0.01, layers=10, micro_batches=4, pipeline="1f1b", pp=4, dp=2, ep=2)
        case["key"], case["prediction"], case["summary"] = "plan/a/ds-moe", {"total_s": 0.01}, {}
        exported = self.exported(records(self.folder / "r.jsonl", case))
        self.check(exported, "pipeline")
        self.assertEqual(exported.refusals, ["# Megatron-Core refuses 10 layers over PP 4 without --first-stage-layers "
                                             "or --last-stage-layers"])
        self.check(self.exported(records(self.folder / "r.jsonl", measured("ds-moe", (1, 1), 0.01))), "whole")

    def test_what_defines_a_published_model_is_a_flag_or_a_comment(self):
        for number, (config, flags, absent, words) in enumerate(DEFINED):
            folder = self.folder / str(number)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
            path = str(folder / "r.jsonl")
            # 16 nodes of 8, and 2 of them: the router's groups are the model's, not the nodes.
            for nodes in ("16", "2"):
                self.text("tune", "--no-verify", "--model", str(folder), "--cluster", "h100-8x8-ib-400", "--nodes",
                          nodes, "--ep", str(min(32, int(nodes) * 8)), "--schedule", "ds-moe", "--nearest", "-o", path,
                          "--overwrite")
                exported = self.exported(path)
                self.check(exported, (number, nodes))
                for flag, value in flags.items():
                    self.assertIn(flag, exported.flags, (number, exported.flags))
                    self.assertEqual(exported.flags[flag], value, (number, flag))
                for flag in absent:
                    self.assertNotIn(flag, exported.flags, number)
                for said in words:
                    self.assertIn(said, exported.comments, number)
                self.assertNotIn("learned noise", exported.comments, number)
                self.assertNotIn("times as long", exported.comments, number)

    def test_virtual_stages(self):
        case = measured("ds-moe", (1, 1), 0.01, layers=16, micro_batches=8, pipeline="1f1b", virtual_stages=2, pp=4,
                        dp=2, ep=2)
        case["key"], case["prediction"], case["summary"] = "plan/a/ds-moe", {"total_s": 0.01}, {}
        exported = self.exported(records(self.folder / "r.jsonl", case))
        self.check(exported, "virtual stages")
        self.assertEqual((exported("--num-virtual-stages-per-pipeline-rank"), exported.refusals), (2, []))

    def test_layers_of_the_first_and_the_last_stage(self):
        for ends, layers, chunks, said in (((3, 1), 16, 1, []), ((0, 1), 16, 1, []), ((4, 2), 14, 2, []),
                                           ((3, 0), 16, 1, ["13 layers over the other stages, 3"])):
            case = measured("ds-moe", (1, 1), 0.01, layers=layers, micro_batches=8, pipeline="1f1b", pp=4, dp=2, ep=2,
                            virtual_stages=chunks, first_stage_layers=ends[0], last_stage_layers=ends[1])
            case["key"], case["prediction"], case["summary"] = "plan/a/ds-moe", {"total_s": 0.01}, {}
            exported = self.exported(records(self.folder / "r.jsonl", case))
            self.check(exported, ends)
            self.assertEqual([exported(flag, 0) for flag in ENDS], list(ends))
            self.assertEqual(exported.refusals, ["# Megatron-Core refuses " + line for line in said])

    def test_the_answer_says_what_it_refuses(self):
        answer = self.text("tune", "--no-verify", "--cluster", "testbed-b", "--schedule", "ds-moe", "--heads", "16",
                           "--kv-heads", "2", "--mp", "4", "-o", str(self.folder / "a.jsonl"))
        self.assertIn("Megatron-Core refuses 2 key-value heads over TP 4, before release 0.16", answer)

    def test_a_layer_alone_says_whose_vocabulary_it_is(self):
        exported = self.exported(records(self.folder / "r.jsonl", measured("ds-moe", (1, 1), 0.01)))
        self.assertIn("set --vocab-size and --untie-embeddings-and-output-weights yourself", exported.comments)
        self.assertNotIn("--vocab-size", exported.flags)


if __name__ == "__main__":
    main()
