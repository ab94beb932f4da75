"""usage: transformers_test.py [TEST ...]

moetune.torch.replace_moe against Hugging Face transformers' own models, small and with random weights: logits, losses
and every gradient on 1, 2 and 4 ranks. What the environment must have is torch_test.py's, and transformers 5."""
import copy
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

for needed in "torch", "transformers":
    if importlib.util.find_spec(needed) is None:
        print(f"skipped: {sys.executable} has no {needed}")
        sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
if "MOETUNE_TORCH_LIBRARY" in os.environ:
    sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402
import transformers  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from moetune import plan  # noqa: E402
from moetune._transformers import MoEBlock  # noqa: E402
from moetune.torch import MoELayer, data_parallel, replace_moe  # noqa: E402

if int(transformers.__version__.partition(".")[0]) < 5:
    print(f"skipped: transformers {transformers.__version__}, whose experts are modules of their own")
    sys.exit(77)

BATCH, SEQ, WORDS = 2, 8, 64
SMALL = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2, "bos_token_id": 0,
         "eos_token_id": 1, "pad_token_id": 2}
FAMILIES = {
    "mixtral": {**SMALL, "intermediate_size": 24, "num_local_experts": 4, "num_key_value_heads": 2},
    # its first layer is dense
    "qwen3_moe": {**SMALL, "moe_intermediate_size": 24, "intermediate_size": 32, "num_experts": 4, "head_dim": 8,
                  "mlp_only_layers": [0], "norm_topk_prob": True},
    "olmoe": {**SMALL, "intermediate_size": 24, "num_experts": 4},
    # likewise, and it has a shared expert, groups of experts and a bias that decides the choice alone
    "deepseek_v3": {**SMALL, "moe_intermediate_size": 24, "intermediate_size": 32, "n_routed_experts": 8,
                    "num_local_experts": 8, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
                    "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8,
                    "qk_nope_head_dim": 8, "v_head_dim": 8},
}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
SCHEDULES = [("tutel", 2), ("fsmoe", (2, 1)), ("parm", 1), ("monta", (2, 2))]


def made(family, dtype=torch.float64, **fields):
    """A model of that family, the same on every rank."""
    config = transformers.AutoConfig.for_model(family, **{**FAMILIES[family], **fields})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                          experts_implementation="eager").to(dtype)
    numbers = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" not in name:
                value.copy_(0.3 * torch.randn(value.shape, generator=numbers, dtype=torch.float64))
    return model


def ranks():
    return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)


def all_words(steps=1):
    """The samples of all ranks."""
    return torch.randint(WORDS, (steps, BATCH * ranks()[1], SEQ), generator=torch.Generator().manual_seed(7))


def own(samples):
    return samples[BATCH * ranks()[0]:BATCH * (ranks()[0] + 1)]


def require_near(found, expected, dtype, what):
    error = float((found - expected).detach().abs().max() / expected.detach().abs().max().clamp_min(1e-3))
    assert error <= TOLERANCE[dtype], f"{what}: {error:.2g} of the largest value, expected {TOLERANCE[dtype]:.0e}"


def loss_of(logits, words):
    """In the model's type, where transformers' is always float32's."""
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def trained(model):
    return data_parallel(model) if distributed.is_initialized() else model


def own_experts(layer, gate_up, down):
    """This rank's part of a block's experts, or of their gradients, by the layer's names."""
    width = gate_up.shape[1] // 2
    whole = {"w1": gate_up[:, :width].mT, "w3": gate_up[:, width:].mT, "w2": down.mT}
    return {name: value[tuple(slice(axis.start, axis.stop) for axis in layer.shards()[name])]
            for name, value in whole.items()}


def require_same_gradients(model, original, dtype, what, summed=False):
    """`summed`: layers have the gradients of the sum of all ranks' losses, not of their mean."""
    blocks = {name: module for name, module in original.named_modules() if hasattr(module, "experts")}
    compared = 0
    for name, p in model.named_parameters():
        block, inside, own_name = name.partition(".layer.")
        if not inside:
            expected = original.get_parameter(name).grad
        elif own_name.startswith("gate.router."):
            expected = blocks[block].gate.get_parameter(own_name[len("gate.router."):]).grad
        else:
            experts = blocks[block].experts
            expected = own_experts(model.get_submodule(block).layer, experts.gate_up_proj.grad,
                                   experts.down_proj.grad)[own_name]
            compared += 1
        if inside and summed:
            expected = expected * ranks()[1]
        # DeepSeek-V3's router sums in float32, whatever the model's type
        by_float32 = "gate.router" in name and type(model).__name__ == "DeepseekV3ForCausalLM"
        require_near(p.grad, expected, torch.float32 if by_float32 else dtype, f"{what}: gradient of {name}")
    assert compared == 3 * len(blocks) > 0


def require_as_original(family, dtype, **how):
    """Logits, the loss and every gradient are the original's over the samples of all ranks."""
    original = made(family, dtype)
    model = copy.deepcopy(original)
    sizes = {} if "plan" in how else {"batch": BATCH * how.get("mp", 1), "seq": SEQ}
    assert replace_moe(model, **sizes, **how) is model
    gathers = [len(each.layer.tokens) > each.tokens for each in model.modules() if isinstance(each, MoEBlock)]
    if "schedule" in how:
        assert set(gathers) == {how.get("mp", 1) > 1 and how["schedule"] in ("parm", "monta")}, (how, gathers)
    ddp, words, what = trained(model), all_words()[0], f"{family} {dtype} {how}"
    found, expected = ddp(input_ids=own(words)).logits, original(input_ids=words).logits
    loss_of(found, own(words)).backward()
    loss_of(expected, words).backward()
    require_near(found, own(expected), dtype, f"{what}: logits")
    require_same_gradients(model, original, dtype, what, how.get("losses") == "sum")


def require_same_training(family, dtype, **how):
    """20 steps of AdamW have the original's losses."""
    original = made(family, dtype)
    model = replace_moe(copy.deepcopy(original), batch=BATCH * how.get("mp", 1), seq=SEQ, **how)
    ddp = trained(model)
    ours, theirs = (torch.optim.AdamW(each.parameters(), 1e-2) for each in (model, original))
    losses = []
    for words in all_words(4).repeat(5, 1, 1):
        loss = loss_of(ddp(input_ids=own(words)).logits, own(words))
        expected = loss_of(original(input_ids=words).logits, words)
        for optimizer, each in (ours, loss), (theirs, expected):
            optimizer.zero_grad()
            each.backward()
            optimizer.step()
        loss = loss.detach()
        if distributed.is_initialized():
            distributed.all_reduce(loss)
            loss /= distributed.get_world_size()
        losses.append((float(loss), float(expected.detach())))
    for found, expected in losses:
        assert abs(found - expected) <= 10 * TOLERANCE[dtype] * expected, losses
    assert losses[-1][0] < 0.9 * losses[0][0], losses


def require_state_dicts(family):
    """A state dict has the original's names; it and the original's can be loaded."""
    original = made(family)
    model = replace_moe(copy.deepcopy(original), batch=BATCH, seq=SEQ)
    words = own(all_words()[0])
    expected = original(input_ids=words).logits
    whole, file = original.state_dict(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    part = torch.load(file)
    assert part.keys() == whole.keys(), part.keys() ^ whole.keys()
    for name, value in part.items():
        if ".experts." in name:
            first = ranks()[0] * len(value)
            assert len(value) * ranks()[1] == len(whole[name])
            assert torch.equal(value, whole[name][first:first + len(value)]), name
        else:
            assert torch.equal(value, whole[name]), name
    for state in part, whole:
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        model.load_state_dict(state)
        require_near(model(input_ids=words).logits, expected, torch.float64, f"{family}: a state that was loaded")


CLUSTERS = {1: ("h100-1x1", {}), 2: ("h100-1x2", {}), 4: ("h100-2x2-ib-400", {"ranks_per_node": 2})}


def require_tuned(count, family, mp=1):
    """The plan that tune recommends."""
    fields = FAMILIES[family]
    experts = fields.get("num_local_experts") or fields.get("num_experts")
    with tempfile.TemporaryDirectory() as folder:
        records = os.path.join(folder, "tuned.jsonl")
        cluster, spread = CLUSTERS[count]
        best = plan.tune(cluster=cluster, nearest=True, records=records, batch=BATCH * mp, seq=SEQ, model_dim=16,
                         hidden=24, heads=4, experts=experts, top_k=2, ffn="mixtral", capacity_factor="none", mp=mp,
                         esp=mp).use
        for dtype in TOLERANCE:
            require_as_original(family, dtype, plan=records, **spread)
        print(f"plan of tune: {family} MP {mp} {best.schedule}", flush=True)


def on_ranks():
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    count = ranks()[1]
    for family in FAMILIES:
        for schedule, degrees in SCHEDULES:
            for dtype in TOLERANCE:
                require_as_original(family, dtype, schedule=schedule, degrees=degrees)
        require_state_dicts(family)
        require_tuned(count, family)
    if count > 1:  # ranks that share tokens inside the layer, by every flow
        spread = {"mp": 2, "esp": 2, "ep": count // 2, **CLUSTERS[count][1]}
        for schedule, degrees in SCHEDULES:
            for losses in "mean", "sum":
                require_as_original("mixtral", torch.float64, schedule=schedule, degrees=degrees, losses=losses,
                                    **spread)
        require_tuned(count, "qwen3_moe", 2)
        require_same_training("mixtral", torch.float64, schedule="parm", degrees=1, **spread)
    require_same_training("mixtral", torch.float64, schedule="fsmoe", degrees=2)
    require_same_training("mixtral", torch.float64, plan="auto")
    require_same_training("deepseek_v3", torch.float32, schedule="tutel", degrees=2)
    if count == 4:  # replicas of experts; experts in two parts
        for groups in {"ep": 2}, {"ep": 2, "esp": 2}:
            for schedule, degrees in SCHEDULES if "esp" not in groups else SCHEDULES[:3]:  # monta needs ESP = MP
                require_as_original("mixtral", torch.float64, schedule=schedule, degrees=degrees, ranks_per_node=2,
                                    **groups)
    print(f"rank {ranks()[0]} of {count}: ok", flush=True)
    if distributed.is_initialized():
        distributed.destroy_process_group()


class Ranks(unittest.TestCase):
    def test_one(self):
        on_ranks()

    def test_torchrun(self):
        for count in 2, 4:
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                   str(count), __file__, "on_ranks"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=1500)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for rank in range(count):
                self.assertIn(f"rank {rank} of {count}: ok", done.stdout)


class Models(unittest.TestCase):
    def setUp(self):
        self.original = made("mixtral")
        self.model = replace_moe(copy.deepcopy(self.original), batch=BATCH, seq=SEQ)
        self.words = all_words()[0]

    def refused(self, line, model, **how):
        with self.assertRaises(ValueError) as raised:
            replace_moe(model, **{"batch": BATCH, "seq": SEQ, **how})
        self.assertIn(line, str(raised.exception))
        self.assertNotIn("\n", str(raised.exception))

    def test_fewer_tokens_are_padded(self):
        words = self.words[:1, :5]
        found, expected = (model(input_ids=words, labels=words) for model in (self.model, self.original))
        require_near(found.logits, expected.logits, torch.float64, "5 of 16 tokens")
        for each in found, expected:
            each.loss.backward()
        require_same_gradients(self.model, self.original, torch.float64, "5 of 16 tokens")
        texts = [model.generate(words, max_new_tokens=4, do_sample=False) for model in (self.model, self.original)]
        self.assertTrue(torch.equal(*texts))
        with self.assertRaisesRegex(ValueError, r"^replace_moe: found 32 tokens, expected at most 16: batch x seq$"):
            self.model(input_ids=self.words.repeat(2, 1))

    def test_copies_and_frozen_weights(self):
        self.original.model.layers[0].mlp.experts.requires_grad_(False)
        model = copy.deepcopy(replace_moe(copy.deepcopy(self.original), batch=BATCH, seq=SEQ))
        for each in model, self.original:
            each(input_ids=self.words, labels=self.words).loss.backward()
        for name, p in model.named_parameters():
            self.assertEqual(p.grad is None, "layers.0.mlp.layer.w" in name, name)
        self.assertTrue(any(isinstance(module, MoELayer) for module in model.modules()))
        self.assertTrue(model.model.layers[0].mlp.training)
        self.assertFalse(replace_moe(self.original.eval(), batch=BATCH, seq=SEQ).model.layers[0].mlp.training)

    def test_gradient_checkpointing(self):
        self.model.train().gradient_checkpointing_enable()
        for each in self.model, self.original:
            each(input_ids=self.words, labels=self.words).loss.backward()
        require_same_gradients(self.model, self.original, torch.float64, "checkpoints")

    def test_routers_are_shared(self):
        routers = [module.gate for module in self.original.modules() if hasattr(module, "experts")]
        replace_moe(self.original, batch=BATCH, seq=SEQ)
        kept = {id(p) for p in self.original.parameters()}
        self.assertTrue(all(id(router.weight) in kept for router in routers))

    def test_refusals(self):
        line = "replace_moe: found a Linear without MoE blocks, expected some of MixtralSparseMoeBlock, "
        self.refused(line, nn.Linear(2, 2))
        self.refused("found a MixtralForCausalLM without MoE blocks", self.model)  # replaced before
        self.refused("replace_moe: model.layers.0.mlp: found experts with GELUActivation, expected SiLU",
                     made("mixtral", hidden_act="gelu"))
        self.refused("found router_jitter_noise 0.1, expected 0", made("mixtral", router_jitter_noise=0.1))
        self.refused("replace_moe: found no plan and no batch or seq, expected a plan or both", self.original, seq=None)
        self.refused("replace_moe: hidden: found 32, expected 24, which the model has", self.original, hidden=32)
        self.refused("replace_moe: found batch 3 x seq 5, expected a multiple of MP 2", self.original, batch=3, seq=5,
                     mp=2)
        self.original.model.layers[0].mlp.experts = nn.ModuleList()
        self.refused("model.layers.0.mlp: found experts that are modules of their own, expected the stacked weights of "
                     "transformers 5", self.original)

    def test_plans_that_do_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            records = os.path.join(folder, "tuned.jsonl")
            fields = {"batch": BATCH, "seq": SEQ, "model_dim": 16, "hidden": 24, "heads": 4, "experts": 4,
                      "ffn": "mixtral", "capacity_factor": "none", "records": records, "nearest": True}
            plan.tune(cluster="h100-1x2", mp=2, **fields)
            self.refused("mp = 2 does not divide ranks of a stage = 1", self.original, plan=records, batch=None,
                         seq=None)
            self.refused("replace_moe: found batch beside plan", self.original, plan=records, seq=None)

    def test_router_logits_are_refused(self):
        line = "^replace_moe: found output_router_logits=True, expected False"
        with self.assertRaisesRegex(ValueError, line):
            self.model(input_ids=self.words, output_router_logits=True)
        self.model.config.output_router_logits = True
        with self.assertRaisesRegex(ValueError, line):
            self.model(input_ids=self.words)
        self.model(input_ids=self.words, output_router_logits=False)


class Page(unittest.TestCase):
    def test_python_runs(self):
        sys.path.insert(0, str(ROOT / "tests/docs"))
        from pages import Page as PageOf
        page = PageOf("docs/torch.md")
        blocks = [each for each in page.blocks if each.language == "python" and "transformers" in each.text]
        self.assertTrue(blocks)
        for block in blocks:
            done = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
            self.assertEqual(done.stdout, page.output_of(block).text, done.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["on_ranks"]:
        on_ranks()
    else:
        unittest.main()
