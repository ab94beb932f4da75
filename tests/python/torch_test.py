"""usage: torch_test.py [TEST ...]

moetune.torch against plain PyTorch: outputs, gradients and training on 1, 2 and 4 ranks, what torch does to modules,
and bad input. The package is the one that is installed, or MOETUNE_TORCH_LIBRARY names its library; MOETUNE_PROGRAM:
the program of a build."""
import contextlib
import copy
import gc
import importlib.util
import io
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

if importlib.util.find_spec("torch") is None:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
if "MOETUNE_TORCH_LIBRARY" in os.environ:
    sys.path.insert(0, str(ROOT / "python"))
import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402

from moetune import plan  # noqa: E402
from moetune._program import output_of, program_path  # noqa: E402
from moetune.torch import MoELayer, data_parallel  # noqa: E402
import moetune.torch_bench  # noqa: E402
from moetune.torch_bench import PlainLayer  # noqa: E402

TINY = {"batch": 2, "seq": 8, "model_dim": 16, "hidden": 24, "heads": 4, "experts": 4, "gate": "switch"}
SWIGLU = {"ffn": "mixtral", "kv_heads": 2, "rope_theta": 1e4, "capacity_factor": None}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
SCHEDULES = [("tutel", 2), ("fsmoe", (2, 1)), ("parm", 1), ("monta", (2, 2)), ("lina", 2), ("ds-moe", 1)]


# ---- the layer in plain PyTorch, whole, and parts of a user's

class OwnGate(nn.Module):
    """A gate of a user's: noise that depends on the token, a temperature and a bias."""

    def __init__(self, dtype, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.project = nn.Linear(16, 4, dtype=dtype)
        self.spread = nn.Parameter(torch.randn(16, 4, dtype=dtype))
        self.temperature = nn.Parameter(torch.full((1,), 1.5, dtype=dtype))

    def forward(self, hidden):
        noise = torch.cos(3 * hidden.detach().sum(1, keepdim=True) + torch.arange(4))
        logits = (self.project(hidden) + noise * functional.softplus(hidden @ self.spread)) / self.temperature
        choices = logits.topk(self.top_k).indices
        return choices, logits.softmax(-1).gather(1, choices)


class OwnExpert(nn.Module):
    """An expert of a user's: three layers, biases and a parameter that weighs nothing."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 20, bias=False), nn.SiLU(),
                                    nn.Linear(20, 16)).to(dtype)
        self.unused = nn.Parameter(torch.zeros(3, dtype=dtype))

    def forward(self, rows):
        return self.layers(rows)


class OwnOrder:
    """An order of a user's: rows are gathered tokens, and summed tokens are rows that are looked up."""

    def order(self, tokens, numbers, rows):
        kept = numbers >= 0
        token = torch.arange(len(tokens)).unsqueeze(1).expand_as(numbers)[kept]
        return tokens.new_zeros(rows, tokens.shape[1]).index_add(0, numbers[kept], tokens[token])

    def i_order(self, rows, numbers, weights):
        found = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))[numbers]  # -1: the row of zeros
        return (weights.unsqueeze(2) * found).sum(1)


def own_exchange(send, receive, ranks):
    """A dispatcher of a user's: sends and receives of torch's, by pairs of ranks."""
    own = ranks.index(distributed.get_rank())
    receive[own].copy_(send[own])
    works = []
    for peer, rank in enumerate(ranks):
        if peer != own:
            works += [distributed.isend(send[peer], rank), distributed.irecv(receive[peer], rank)]
    for work in works:
        work.wait()


def scaled(factor):
    return lambda phase, rows: rows.mul_(factor)


SCALED = {"before_dispatch": scaled(1024), "after_dispatch": lambda phase, rows: rows / 1024,
          "before_combine": scaled(2), "after_combine": scaled(0.5)}


def all_experts(layer, fields):
    """Every expert, from all ranks' parts."""
    mine = {number: expert.state_dict() for number, expert in layer.experts.items()}
    parts = [mine]
    if distributed.is_initialized():
        parts = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, mine)
    experts = [fields["expert"]() for _ in range(fields["experts"])]
    for part in parts:
        for number, state in part.items():
            experts[int(number)].load_state_dict(state)
    return experts


class PlainWithParts(PlainLayer):
    """With a gate and experts of a user's, where the fields have them."""

    def routed(self, rows):
        return self.fields["gate"](rows) if isinstance(self.fields["gate"], nn.Module) else super().routed(rows)

    def expert(self, number, rows):
        return self.fields["made_experts"][number](rows) if "made_experts" in self.fields else super().expert(number,
                                                                                                              rows)


def plain_layer(fields, w, x):
    return PlainWithParts(fields, w)(x)


def no_drops(fields):
    """Every token has a row, by a capacity of all of them unless the layer is dropless."""
    return {"capacity_factor": fields["experts"] / fields.get("top_k", 2), **fields}


def whole_weights(layer):
    """Every weight of the layer, whole, from all ranks' parts."""
    shards, own = layer.shards(), dict(layer.named_parameters())
    mine = {name: (axes, own[name].detach().clone()) for name, axes in shards.items()}
    parts = [mine]
    if distributed.is_initialized():
        parts = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, mine)
    whole = {}
    for part in parts:
        for name, (axes, value) in part.items():
            totals = [max(each[name][0][axis].stop for each in parts) for axis in range(len(axes))]
            whole.setdefault(name, torch.full(totals, math.nan, dtype=value.dtype))
            whole[name][tuple(slice(axis.start, axis.stop) for axis in axes)] = value
    assert not any(value.isnan().any() for value in whole.values())
    return {name: value.requires_grad_() for name, value in whole.items()}


def own_part(layer, name, whole):
    return whole[tuple(slice(axis.start, axis.stop) for axis in layer.shards()[name])]


def all_tokens(layer, dtype, seed=0):
    held = torch.tensor(layer.tokens.stop)
    if distributed.is_initialized():
        distributed.all_reduce(held, distributed.ReduceOp.MAX)
    made = torch.randn(int(held), TINY["model_dim"], generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return made


def require_near(found, expected, dtype, what):
    error = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-3))
    assert error <= TOLERANCE[dtype], f"{what}: {error:.2g} of the largest value, expected {TOLERANCE[dtype]:.0e}"


def require_as_plain(fields, dtype, **how):
    """Output and every gradient are plain PyTorch's."""
    fields = no_drops(fields)
    layer = MoELayer(**how) if "plan" in how else MoELayer(dtype=dtype, **fields, **how)
    if fields["gate"] == "gshard":
        layer.eval()  # without the gate's noise
    all_x, all_dy = all_tokens(layer, dtype), all_tokens(layer, dtype, 1)
    mine = slice(layer.tokens.start, layer.tokens.stop)
    x = all_x[mine].clone().requires_grad_()
    y = layer(x)
    (y * all_dy[mine]).sum().backward()
    w = whole_weights(layer)
    if isinstance(fields["gate"], nn.Module):
        gate = copy.deepcopy(layer.gate)
        gate.zero_grad()
        fields = {**fields, "gate": gate}
    if "expert" in fields:
        fields["made_experts"] = all_experts(layer, fields)
    all_x.requires_grad_()
    expected = plain_layer(fields, w, all_x)
    (expected * all_dy).sum().backward()
    what = f"{how} {fields.get('ffn', 'gpt')} {dtype}"
    require_near(y.detach(), expected.detach()[mine], dtype, f"{what}: output")
    require_near(x.grad, all_x.grad[mine], dtype, f"{what}: gradient of x")
    for name, p in layer.named_parameters():
        if name == "gate_noise":  # weighs what is zero
            assert not p.grad.any()
            continue
        if name.startswith("gate."):
            require_near(p.grad, gate.get_parameter(name[5:]).grad, dtype, f"{what}: gradient of {name}")
            continue
        if name.startswith("experts."):
            _, number, own = name.split(".", 2)
            expected = fields["made_experts"][int(number)].get_parameter(own).grad
            require_near(p.grad, torch.zeros_like(p) if expected is None else expected, dtype,
                         f"{what}: gradient of {name}")
            continue
        require_near(p.grad, own_part(layer, name, w[name].grad), dtype, f"{what}: gradient of {name}")


def require_same_training(fields, dtype, **how):
    """20 steps of Adam have plain PyTorch's losses."""
    fields = no_drops(fields)
    layer = MoELayer(dtype=dtype, **fields, **how)
    w = whole_weights(layer)
    all_x, target = all_tokens(layer, dtype), all_tokens(layer, dtype, 1)
    mine = slice(layer.tokens.start, layer.tokens.stop)
    ours, plain = torch.optim.Adam(layer.parameters(), 1e-2), torch.optim.Adam(w.values(), 1e-2)
    held = {name: p.data_ptr() for name, p in layer.named_parameters()}
    losses = []
    for _ in range(20):
        ours.zero_grad()
        loss = functional.mse_loss(layer(all_x[mine]), target[mine], reduction="sum") / target.numel()
        loss.backward()
        ours.step()
        loss = loss.detach()
        if distributed.is_initialized():
            distributed.all_reduce(loss)
            loss /= len(layer.tokens) * distributed.get_world_size() / len(target)  # tokens that several ranks have
        plain.zero_grad()
        expected = functional.mse_loss(plain_layer(fields, w, all_x), target)
        expected.backward()
        plain.step()
        losses.append((float(loss), float(expected.detach())))
    for found, expected in losses:
        assert abs(found - expected) <= 10 * TOLERANCE[dtype] * expected, losses
    assert losses[-1][0] < 0.8 * losses[0][0], losses
    assert held == {name: p.data_ptr() for name, p in layer.named_parameters()}, "optimizers work in place"


def require_ddp(dtype):
    """A model of torch's and our layers under DistributedDataParallel trains as one process with all tokens."""
    fields = no_drops({**TINY, "aux_loss": 0.0})
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 16), MoELayer(dtype=dtype, losses="mean", **fields), nn.Linear(16, 4)).to(dtype)
    wrapped = data_parallel(model)
    w = whole_weights(model[1])
    before, after = copy.deepcopy(model[0]), copy.deepcopy(model[2])
    all_x, target = all_tokens(model[1], dtype), all_tokens(model[1], dtype, 1)[:, :4]
    mine = slice(model[1].tokens.start, model[1].tokens.stop)
    functional.mse_loss(wrapped(all_x[mine]), target[mine]).backward()
    functional.mse_loss(after(plain_layer(fields, w, before(all_x))), target).backward()
    for ours, plain in ((model[0], before), (model[2], after)):
        require_near(ours.weight.grad, plain.weight.grad, dtype, "a Linear under DDP")
    for name, p in model[1].named_parameters():
        require_near(p.grad, own_part(model[1], name, w[name].grad), dtype, f"{name} under DDP")


def require_auto(fields, **spread):
    """A layer that decides its plan trains as one that has one: the same losses before, while and after it changes."""
    fields = no_drops(fields)
    layer, fixed = (MoELayer(dtype=torch.float64, plan=each, **copy.deepcopy(fields), **spread)
                    for each in ("auto", None))
    fixed.load_state_dict(layer.state_dict())
    all_x = all_tokens(layer, torch.float64)
    x, target = all_x[layer.tokens.start:layer.tokens.stop], all_tokens(layer, torch.float64, 1)
    target = target[layer.tokens.start:layer.tokens.stop]
    adams = [torch.optim.Adam(each.parameters(), 1e-3) for each in (layer, fixed)]
    plans, after = [], 0
    while after < 3:
        losses = []
        for each, adam in zip((layer, fixed), adams):
            adam.zero_grad()
            loss = functional.mse_loss(each(x), target)
            loss.backward()
            adam.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= 1e-9 * losses[1], (len(plans), losses)
        plans.append(repr(layer))
        after += layer.tuning()["decided"]
        assert len(plans) < 100
    assert len(set(plans[-3:])) == 1 and len(set(plans)) > 2, plans
    tuning = layer.tuning()
    measured = [each for each in tuning["ranking"] if each["measured_s"] is not None]
    assert 1 <= len(measured) <= 3 and measured == tuning["ranking"][:len(measured)], tuning["ranking"]
    best = min(measured, key=lambda each: each["measured_s"])
    assert tuning["plan"]["schedule"] == best["schedule"] or "/" in tuning["plan"]["schedule"], (tuning, best)
    predicted = [each["predicted_s"] for each in tuning["ranking"]]
    assert predicted == sorted(predicted) and predicted[0] > 0
    if distributed.is_initialized():
        everyone = [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, (plans, tuning))
        assert all(each == everyone[0] for each in everyone), "the same plans and figures on all ranks"
    pointers = [p.data_ptr() for p in layer.parameters()]
    layer(x)
    assert pointers == [p.data_ptr() for p in layer.parameters()], "weights stay in the layer's memory"


# ---- one process

def require_learns(layer, x):
    """Ten steps of Adam take a fifth of the loss."""
    adam = torch.optim.Adam(layer.parameters(), 1e-2)
    losses = []
    for _ in range(10):
        adam.zero_grad()
        loss = functional.mse_loss(layer(x), x.roll(1, 1))
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses


class Layers(unittest.TestCase):
    def test_gradients_are_plain_pytorchs(self):
        for dtype in torch.float64, torch.float32:
            for schedule, degrees in SCHEDULES:
                for fields in TINY, {**TINY, **SWIGLU}, {**TINY, "gate": "gshard"}:
                    with self.subTest(schedule=schedule, dtype=dtype, fields=fields):
                        require_as_plain(fields, dtype, schedule=schedule, degrees=degrees)

    def test_trains_as_plain_pytorch(self):
        for schedule, degrees in SCHEDULES[:4]:
            require_same_training(TINY, torch.float64, schedule=schedule, degrees=degrees)
        require_same_training({**TINY, **SWIGLU}, torch.float32)


class WithoutAttention(unittest.TestCase):
    def test_is_the_rest_of_the_layer(self):
        """A layer whose W_o is zero has no attention either."""
        for fields in TINY, {**TINY, **SWIGLU}, {**TINY, "residual": False, "norm": "none"}:
            fields = no_drops(fields)
            layer = MoELayer(**fields, dtype=torch.float64, schedule="fsmoe", degrees=2, attention=False)
            other = MoELayer(**{**fields, "residual": True}, dtype=torch.float64)
            for name in "wq", "norm1":
                self.assertNotIn(name, dict(layer.named_parameters()))
            with torch.no_grad():
                other.wo.zero_()
            layer.load_state_dict({name: value for name, value in other.state_dict().items()
                                   if name in dict(layer.named_parameters())})
            x, other_x = (all_tokens(layer, torch.float64).requires_grad_() for _ in range(2))
            y, expected = layer(x), other(other_x)
            if not fields.get("residual", True):
                expected = expected - other_x
            for each in y, expected:
                each.square().sum().backward()
            require_near(y, expected, torch.float64, "output")
            require_near(x.grad, other_x.grad, torch.float64, "gradient of x")
            for name, p in layer.named_parameters():
                require_near(p.grad, other.get_parameter(name).grad, torch.float64, name)

    def test_refusals(self):
        for found, kind in ("no", "text"), (1, "a whole number"):
            with self.assertRaisesRegex(ValueError, "MoELayer: attention: found"):
                MoELayer(**TINY, attention=found)


class Modules(unittest.TestCase):
    """What torch does to any module."""

    def setUp(self):
        self.layer = MoELayer(**TINY, dtype=torch.float64)
        self.x = all_tokens(self.layer, torch.float64).view(2, 8, 16)

    def gradients(self, *outputs, layer=None):
        layer = layer or self.layer
        layer.zero_grad()
        for y in outputs:
            y.square().sum().backward()
        return {name: p.grad.clone() for name, p in layer.named_parameters()}

    def assert_equal(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-12, atol=1e-12, msg=name)

    def test_keeps_the_shape_and_needs_no_gradient(self):
        y = self.layer(self.x)
        self.assertEqual(y.shape, self.x.shape)
        self.assertTrue(y.requires_grad)
        with torch.no_grad():
            self.assertFalse(self.layer(self.x).requires_grad)
        torch.testing.assert_close(self.layer(self.x.view(16, 16)), y.view(16, 16))
        self.assertIn("k2", repr(self.layer))
        self.assertEqual(self.layer.tokens, range(16))

    def test_state_dict_goes_round(self):
        y = self.layer(self.x).detach()
        file = io.BytesIO()
        torch.save(self.layer.state_dict(), file)
        file.seek(0)
        for assign in False, True:
            other = MoELayer(**TINY, dtype=torch.float64, seed=7)
            self.assertFalse(torch.equal(other(self.x), y))
            file.seek(0)
            other.load_state_dict(torch.load(file), assign=assign)
            torch.testing.assert_close(other(self.x), y, rtol=0, atol=0)

    def test_copies_are_apart(self):
        y = self.layer(self.x).detach()
        file = io.BytesIO()
        torch.save(self.layer, file)
        file.seek(0)
        for other in copy.deepcopy(self.layer), torch.load(file, weights_only=False):
            torch.testing.assert_close(other(self.x), y, rtol=0, atol=0)
            with torch.no_grad():
                for p in other.parameters():
                    p.zero_()
            torch.testing.assert_close(other(self.x), self.x, rtol=0, atol=0)  # residuals alone
            torch.testing.assert_close(self.layer(self.x), y, rtol=0, atol=0)

    def test_gradients_accumulate(self):
        once = self.gradients(self.layer(self.x))
        self.layer.zero_grad()
        for _ in range(2):
            self.layer(self.x).square().sum().backward()
        self.assert_equal({name: p.grad for name, p in self.layer.named_parameters()},
                          {name: 2 * value for name, value in once.items()})

    def test_gradients_that_are_kept_stay_as_they_are(self):
        """The layer's memory holds the last gradients alone."""
        first = torch.autograd.grad(self.layer(self.x).square().sum(), list(self.layer.parameters()))
        kept, array = [each.clone() for each in first], first[0].numpy()
        second = torch.autograd.grad(self.layer(2 * self.x).square().sum(), list(self.layer.parameters()))
        for gradient, value, other in zip(first, kept, second):
            self.assertTrue(torch.equal(gradient, value))
            self.assertFalse(torch.equal(gradient, other))
        self.assertEqual(array.shape, kept[0].shape)
        self.layer.zero_grad(set_to_none=False)
        self.assert_equal(self.gradients(self.layer(self.x)), dict(zip(self.gradients(self.layer(self.x)), kept)))
        gradient = next(self.layer.parameters()).grad
        value = gradient.clone()
        self.layer = None  # whose memory the gradient keeps, and the array
        self.assertTrue(torch.equal(gradient, value))
        self.assertTrue(math.isfinite(array.sum()))

    def test_backwards_in_any_order(self):
        """One forward's activations are kept; others are computed again."""
        inputs = [self.x, 2 * self.x, self.x.flip(0)]
        expected = self.gradients(*[self.layer(x) for x in inputs[:1]])
        for x in inputs[1:]:
            for name, value in self.gradients(self.layer(x)).items():
                expected[name] += value
        outputs = [self.layer(x) for x in inputs]
        self.assert_equal(self.gradients(*outputs), expected)
        outputs = [self.layer(x) for x in inputs]
        self.assert_equal(self.gradients(*reversed(outputs)), expected)
        y = self.layer(self.x).square().sum()
        self.layer.zero_grad()
        y.backward(retain_graph=True)
        y.backward()
        self.assert_equal({name: p.grad for name, p in self.layer.named_parameters()},
                          {name: 2 * value for name, value in self.gradients(self.layer(self.x)).items()})

    def test_noise_is_repeated_with_a_forward(self):
        layer = MoELayer(**{**TINY, "gate": "gshard"}, dtype=torch.float64)
        first, second = layer(self.x), layer(self.x)
        self.assertFalse(torch.equal(first, second), "each forward has noise of its own")
        older = self.gradients(first, layer=layer)
        other = MoELayer(**{**TINY, "gate": "gshard"}, dtype=torch.float64)
        self.assert_equal(older, self.gradients(other(self.x), layer=other))

    def test_checkpoints(self):
        for gate in "switch", "gshard":
            expected = None
            for reentrant in None, False, True:
                layers = [MoELayer(**{**TINY, "gate": gate}, dtype=torch.float64, seed=seed) for seed in (1, 2)]
                if reentrant and gate == "gshard":
                    continue  # its noise is another when the forward runs again
                x = self.x.clone().requires_grad_()
                y = x
                for layer in layers:
                    y = layer(y) if reentrant is None else torch.utils.checkpoint.checkpoint(
                        layer, y, use_reentrant=reentrant)
                y.square().sum().backward()
                found = {f"{i}.{name}": p.grad for i, layer in enumerate(layers)
                         for name, p in layer.named_parameters()}
                found["x"] = x.grad
                expected = expected or found
                self.assert_equal(found, expected)

    def test_is_freed_with_what_refers_to_it(self):
        """The library keeps no parameter, so Python's collector sees all of a cycle."""
        layer = MoELayer(**TINY)
        layer.w1.register_hook(lambda gradient, layer=layer: None)
        layer.w2.owner = layer
        layer(torch.randn(len(layer.tokens), 16)).sum().backward()
        alive = weakref.ref(layer)
        del layer
        gc.collect()
        self.assertIsNone(alive())

    def test_other_weights_leave_its_own(self):
        gated = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64)
        for layer in self.layer, gated:
            x, own = self.x.view(16, 16), {name: p.detach().clone() for name, p in layer.named_parameters()}
            y = layer(x).detach()
            zeros = {name: torch.zeros_like(value) for name, value in own.items()}
            zeros["gate.temperature"] = torch.ones(1, dtype=torch.float64)
            zeros = {name: value for name, value in zeros.items() if name in own}
            other = torch.func.functional_call(layer, zeros, (x,))
            torch.testing.assert_close(other, x, rtol=0, atol=0)  # residuals alone
            self.assert_equal(dict(layer.named_parameters()), own)
            torch.testing.assert_close(layer(x), y, rtol=0, atol=0)
            self.assertFalse(zeros["w1"].any() or zeros["wq"].any())
            old, seen = layer.w1, layer.w1.detach()
            layer.w1 = nn.Parameter(3 * old.detach())
            layer(x)
            for value in old, seen:
                torch.testing.assert_close(value, own["w1"], rtol=0, atol=0)
            layer.w1 = old
            torch.testing.assert_close(layer(x), y, rtol=0, atol=0)
            seen.zero_()  # shares the parameter's memory still
            self.assertFalse(torch.equal(layer(x), y))

    def test_weights_that_change_places(self):
        layer = MoELayer(**{**TINY, **SWIGLU}, dtype=torch.float64)
        w = whole_weights(layer)
        w["w1"], w["w3"], w["wo"] = w["w3"], w["w1"], w["wo"].t()
        layer.w1.data, layer.w3.data, layer.wo.data = layer.w3.data, layer.w1.data, layer.wo.data.t()
        x = self.x.view(16, 16)
        expected = plain_layer({**TINY, **SWIGLU}, w, x)
        torch.testing.assert_close(layer(x), expected, rtol=1e-10, atol=1e-10)

    def test_frozen_parameters(self):
        expected = self.gradients(self.layer(self.x))
        self.layer.zero_grad()
        self.layer.w1.requires_grad_(False)
        self.layer(self.x).square().sum().backward()
        self.assertIsNone(self.layer.w1.grad)
        torch.testing.assert_close(self.layer.w2.grad, expected["w2"])

    def test_parametrizations_and_pruning(self):
        expected = self.gradients(self.layer(self.x))

        class Twice(nn.Module):
            def forward(self, weight):
                return 2 * weight

        with torch.no_grad():
            self.layer.w1.div_(2)
        parametrize.register_parametrization(self.layer, "w1", Twice())
        found = self.gradients(self.layer(self.x))
        torch.testing.assert_close(found["parametrizations.w1.original"], 2 * expected["w1"])
        prune.l1_unstructured(self.layer, "w2", amount=0.5)
        found = self.gradients(self.layer(self.x))
        self.assertEqual(found["w2_orig"].count_nonzero(), self.layer.w2_mask.count_nonzero())

    def test_threads_wait_for_each_other(self):
        gated = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64)
        for layer in self.layer, gated:
            inputs = [self.x.view(16, 16), self.x.view(16, 16).flip(0)]
            plain = [(layer(x).detach(), torch.autograd.grad(layer(x).sum(), layer.w1)[0]) for x in inputs]
            wrong = []

            def use(x, expected, layer=layer, wrong=wrong):
                try:
                    for _ in range(20):
                        y = layer(x)
                        torch.testing.assert_close(y.detach(), expected[0])
                        torch.testing.assert_close(torch.autograd.grad(y.sum(), layer.w1)[0], expected[1])
                except BaseException as error:  # whatever it is, it belongs in this thread's test
                    wrong.append(error)

            threads = [threading.Thread(target=use, args=each) for each in zip(inputs, plain)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_threads_without_gradients(self):
        """Do not take the graphs of one that trains."""
        torch.manual_seed(3)
        layer = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64, expert=OwnExpert)
        layer(self.x).square().sum().backward()
        own = dict(layer.named_parameters())  # the layer shows others while it calls its gate
        expected = {name: p.grad.clone() for name, p in own.items()}
        stopped = threading.Event()

        def look():
            with torch.no_grad():
                while not stopped.is_set():
                    layer(2 * self.x)

        beside = threading.Thread(target=look)
        beside.start()
        try:
            for _ in range(100):
                for p in own.values():
                    p.grad = None
                layer(self.x).square().sum().backward()
                for name, p in own.items():
                    torch.testing.assert_close(p.grad, expected[name], rtol=1e-12, atol=1e-12)
        finally:
            stopped.set()
            beside.join()

    def test_leaves_torchs_threads_alone(self):
        done = subprocess.run([sys.executable, "-c", """
import torch
from moetune.torch import MoELayer
for threads in 2, 1, 3:
    torch.set_num_threads(threads)
    layer = MoELayer(batch=2, seq=8, model_dim=16, hidden=24, heads=4, experts=4)
    layer(torch.randn(16, 16)).sum().backward()
    assert torch.get_num_threads() == threads, torch.get_num_threads()
"""], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_autocast(self):
        layer = MoELayer(**TINY)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(self.x.to(torch.bfloat16))
        self.assertEqual(y.dtype, torch.float32)

    def test_auxiliary_loss(self):
        layer = MoELayer(**TINY, aux_loss=0.5, dtype=torch.float64)
        layer(self.x)
        self.assertGreater(layer.auxiliary_loss(), 0)


class Gates(unittest.TestCase):
    """A module of the user's as the gate."""

    def test_gradients_are_plain_pytorchs(self):
        for dtype in torch.float64, torch.float32:
            for schedule, degrees in SCHEDULES:
                for top_k in 1, 2:
                    with self.subTest(schedule=schedule, dtype=dtype, top_k=top_k):
                        torch.manual_seed(3)
                        require_as_plain({**TINY, "top_k": top_k, "gate": OwnGate(dtype, top_k)}, dtype,
                                         schedule=schedule, degrees=degrees)

    def setUp(self):
        torch.manual_seed(3)
        self.layer = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64)
        self.x = all_tokens(self.layer, torch.float64)

    def test_is_a_part_of_the_module(self):
        y = self.layer(self.x).detach()
        self.assertIn("gate.project.weight", self.layer.state_dict())
        for other in copy.deepcopy(self.layer), self.layer:
            torch.testing.assert_close(other(self.x), y, rtol=0, atol=0)
        other = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64)
        other.load_state_dict(self.layer.state_dict())
        torch.testing.assert_close(other(self.x), y, rtol=0, atol=0)
        with torch.no_grad():
            other.gate.temperature.fill_(9)
        self.assertFalse(torch.equal(other(self.x), y))
        torch.testing.assert_close(self.layer(self.x), y, rtol=0, atol=0)

    def test_trains(self):
        require_learns(self.layer, self.x)
        self.assertNotEqual(self.layer.gate.temperature.item(), 1.5)

    def test_frozen_and_older_forwards(self):
        self.layer(self.x).square().sum().backward()
        expected = {name: p.grad.clone() for name, p in self.layer.named_parameters()}
        self.layer.zero_grad()
        older = self.layer(self.x)
        self.layer(2 * self.x)
        self.layer.gate.project.bias.requires_grad_(False)
        older.square().sum().backward()
        for name, p in self.layer.named_parameters():
            if p.requires_grad:
                torch.testing.assert_close(p.grad, expected[name], rtol=1e-12, atol=1e-12)
        self.assertIsNone(self.layer.gate.project.bias.grad)

    def test_hooks_see_a_gradient_once(self):
        self.layer(self.x).square().sum().backward()
        weight, seen = self.layer.gate.project.weight, []
        expected, weight.grad = weight.grad, None

        def halved(gradient):
            seen.append(gradient)
            return gradient / 2

        weight.register_hook(halved)
        self.layer(self.x).square().sum().backward()
        self.assertEqual(len(seen), 1)
        torch.testing.assert_close(weight.grad, expected / 2)

    def test_gradients_of_other_weights(self):
        """They are those of the weights that the layer was called with, which it no longer has."""
        expected = torch.autograd.grad(self.layer(self.x).square().sum(), self.layer.gate.spread)[0]
        others = {name: p.detach().clone().requires_grad_() for name, p in self.layer.named_parameters()}
        y = torch.func.functional_call(self.layer, others, (self.x,))
        with torch.no_grad():
            self.layer.gate.spread.mul_(3)
        for older in False, True:
            if older:
                self.layer(2 * self.x)
            y.square().sum().backward(retain_graph=True)
            torch.testing.assert_close(others["gate.spread"].grad, (1 + older) * expected)

    def test_lives_as_long_as_the_graph(self):
        expected = torch.autograd.grad(self.layer(self.x).sum(), self.layer.gate.spread)[0]
        gate, y = self.layer.gate, self.layer(self.x).sum()
        del self.layer
        y.backward()
        torch.testing.assert_close(gate.spread.grad, expected)

    def test_names_of_parameters(self):
        gate = OwnGate(torch.float64)
        gate.project_weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))  # beside project.weight
        layer = MoELayer(**{**TINY, "gate": gate}, dtype=torch.float64)
        layer(self.x).square().sum().backward()
        self.assertFalse(gate.project_weight.grad.any())
        self.assertTrue(gate.project.weight.grad.any())
        layer.gate = OwnGate(torch.float64)
        with self.assertRaisesRegex(ValueError, "^gate: found parameters spread, .*, expected spread.*project_weight"):
            layer(self.x)
        layer.gate = None
        with self.assertRaisesRegex(ValueError, "^gate: found parameters none, expected"):
            layer(self.x)

    def test_refusals(self):
        class Bad(nn.Module):
            def forward(self, hidden):
                return self.made(hidden)

        layer = MoELayer(**{**TINY, "gate": Bad()})
        x = torch.randn(16, 16)

        def broken(hidden):
            raise KeyError("mine")

        for made, error, line in (
                (lambda h: (torch.zeros(16, 1, dtype=int), torch.ones(16, 2)), ValueError, r"found choices \(16, 1\)"),
                (lambda h: (torch.full((16, 2), 4), torch.ones(16, 2)), ValueError, "found expert 4, expected 0 to 3"),
                (lambda h: (torch.full((16, 2), 2**32), torch.ones(16, 2)), ValueError, "found expert 4294967296, exp"),
                (lambda h: (torch.ones(16, 2), torch.zeros(16, 2, dtype=int)), TypeError,
                 "^gate: found experts of torch.float32 and weights of torch.int64, expected integers and"),
                (lambda h: (torch.ones(16, 2), torch.ones(16, 2)), TypeError, "found experts of torch.float32"),
                (lambda h: (torch.ones(16, 2) > 0, torch.ones(16, 2)), TypeError, "found experts of torch.bool"),
                (lambda h: ([[0, 1]] * 16, [[1, 1]] * 16), TypeError, "^gate: found list, list, expected two tensors"),
                (lambda h: h, TypeError, "^gate: found Tensor, expected two tensors"),
                (lambda h: (h, h, h), TypeError, "^gate: found Tensor, Tensor, Tensor, expected two tensors"),
                (lambda h: None, TypeError, "^gate: found NoneType, expected two tensors"),
                (lambda h: layer(h), RuntimeError, "found a layer that its own part calls"),
                (lambda h: (torch.arange(2).expand(16, 2), torch.full((16, 2), math.nan)), ValueError,
                 "^gate: found a weight that is not finite"),
                (lambda h: (torch.zeros(16, 2, dtype=int, device="meta"), torch.ones(16, 2)), ValueError,
                 "^gate: found a tensor on meta, expected the CPU's"),
                (broken, KeyError, "mine")):
            layer.gate.made = made
            with self.assertRaisesRegex(error, line):
                layer(x)
        layer.gate.made = lambda h: (torch.arange(2).expand(16, 2), torch.ones(16, 2))
        layer(x).sum().backward()  # and it goes on
        with self.assertRaisesRegex(ValueError, "auxiliary losses"):
            MoELayer(**{**TINY, "gate": Bad(), "aux_loss": 1})
        with self.assertRaisesRegex(ValueError, "found a parameter of 4 axes"):
            MoELayer(**{**TINY, "gate": nn.Conv2d(2, 2, 2)})


class Experts(unittest.TestCase):
    """Modules of the user's as the experts."""

    def test_gradients_are_plain_pytorchs(self):
        for dtype in torch.float64, torch.float32:
            for schedule, degrees in [*SCHEDULES, ("fsmoe", (1, 3)), ("fsmoe-dw", (2, 3))]:
                for capacity in {}, {"capacity_factor": None}:
                    with self.subTest(schedule=schedule, dtype=dtype, capacity=capacity):
                        require_as_plain({**TINY, **capacity, "expert": lambda: OwnExpert(dtype)}, dtype,
                                         schedule=schedule, degrees=degrees)

    def test_beside_a_gate_of_the_users(self):
        torch.manual_seed(3)
        require_as_plain({**TINY, "gate": OwnGate(torch.float64), "expert": OwnExpert}, torch.float64)

    def setUp(self):
        self.layer = MoELayer(**TINY, dtype=torch.float64, schedule="fsmoe", degrees=(2, 1), expert=OwnExpert)
        self.x = all_tokens(self.layer, torch.float64)

    def test_experts_without_rows(self):
        """Their gradients are zeros, whatever an older backward left."""
        self.layer(self.x).sum().backward()
        self.layer.zero_grad()
        with torch.no_grad():
            self.layer.gate.zero_()
            self.layer.gate[:2] = 1e3 * torch.sign(torch.arange(16) - 7.5)
        self.layer(torch.ones_like(self.x)).square().sum().backward()
        used = {number: any(bool(p.grad.any()) for p in expert.parameters())
                for number, expert in self.layer.experts.items()}
        self.assertIn(False, used.values())
        self.assertIn(True, used.values())

    def test_is_a_part_of_the_module(self):
        y = self.layer(self.x).detach()
        self.assertIn("experts.3.layers.0.weight", self.layer.state_dict())
        for other in copy.deepcopy(self.layer), self.layer:
            torch.testing.assert_close(other(self.x), y, rtol=0, atol=0)
        held = self.layer._layer.arguments[4].values()
        self.assertTrue(held and all(p.is_meta for p in held), "no second copy of the weights")
        again = MoELayer(**TINY, dtype=torch.float64, schedule="fsmoe", degrees=(2, 1), expert=OwnExpert)
        torch.testing.assert_close(again(self.x), y, rtol=0, atol=0)  # seeded alike
        first, second = self.layer.experts["0"].layers[0].weight, self.layer.experts["1"].layers[0].weight
        self.assertFalse(torch.equal(first, second))
        other = MoELayer(**TINY, dtype=torch.float64, seed=7, expert=OwnExpert)
        self.assertFalse(torch.equal(other(self.x), y))
        other.load_state_dict(self.layer.state_dict())
        torch.testing.assert_close(other(self.x), y, rtol=1e-12, atol=1e-12)

    def test_older_forwards_and_no_gradients(self):
        self.layer(self.x).square().sum().backward()
        expected = {name: p.grad.clone() for name, p in self.layer.named_parameters()}
        self.layer.zero_grad()
        older = self.layer(self.x)
        self.layer(2 * self.x)
        with torch.no_grad():
            self.layer(3 * self.x)
        self.assertFalse(self.layer._layer.rows, "no graph is kept")
        older.square().sum().backward()
        for name, p in self.layer.named_parameters():
            torch.testing.assert_close(p.grad, expected[name], rtol=1e-12, atol=1e-12)

    def test_keeps_no_graph_behind_a_backward(self):
        for degrees in (1, 3), (2, 1), (2, 2):
            layer = MoELayer(**TINY, dtype=torch.float64, schedule="fsmoe-dw", degrees=degrees, expert=OwnExpert)
            y = layer(self.x)
            self.assertTrue(layer._layer.rows)
            y.sum().backward()
            self.assertFalse(layer._layer.rows, degrees)

    def test_trains(self):
        require_learns(self.layer, self.x)

    def test_refusals(self):
        one = OwnExpert()
        with self.assertRaisesRegex(ValueError, "^MoELayer: expert: found a parameter of two experts"):
            MoELayer(**TINY, dtype=torch.float64, expert=lambda: one)
        with self.assertRaisesRegex(ValueError, "^MoELayer: seed: found 'x', expected a whole number"):
            MoELayer(**TINY, dtype=torch.float64, expert=OwnExpert, seed="x")
        MoELayer(**TINY, dtype=torch.float64, expert=OwnExpert, seed=2 ** 60)
        for made, error, line in (
                (OwnExpert(), TypeError, "found a OwnExpert, expected what makes one when it is called"),
                (lambda: 3, TypeError, "found one that makes a int, expected a torch.nn.Module"),
                (lambda: OwnExpert(torch.float32), TypeError, "experts/0/.*Float, expected Double")):
            with self.assertRaisesRegex(error, line):
                MoELayer(**TINY, dtype=torch.float64, expert=made)
        for made, error, line in (
                (lambda rows: rows[:1], ValueError, r"^expert: found shape \(1, 16\), expected \("),
                (lambda rows: rows.float(), TypeError, "^expert: found elements of type Float, expected Double"),
                (lambda rows: (rows, rows), TypeError, "^expert: found a tuple, expected a tensor"),
                (self.layer, RuntimeError, "own part calls")):
            broken = MoELayer(**TINY, dtype=torch.float64, expert=OwnExpert)
            for expert in broken.experts.values():
                expert.forward = made if made is not self.layer else lambda rows: broken(rows)
            with self.assertRaisesRegex(error, line):
                broken(self.x)
        self.layer.experts["0"] = nn.Linear(16, 16, dtype=torch.float64)
        with self.assertRaisesRegex(ValueError, "^experts: found parameters 0.weight, .*expected 0.unused"):
            self.layer(self.x)


class OtherParts(unittest.TestCase):
    """An order, a dispatcher and a hook of the user's. Ranks exchange rows: Processes has the rest."""

    def test_orders_are_plain_pytorchs(self):
        for dtype in torch.float64, torch.float32:
            for schedule, degrees in [*SCHEDULES, ("fsmoe", (1, 3))]:
                for fields in TINY, {**TINY, **SWIGLU}, {**TINY, "gate": "gshard"}:
                    with self.subTest(schedule=schedule, dtype=dtype, fields=fields):
                        require_as_plain(fields, dtype, schedule=schedule, degrees=degrees, order=OwnOrder())

    def test_orders_drop_what_the_layer_drops(self):
        fields = {**TINY, "capacity_factor": 0.5}
        ours, plain = (MoELayer(dtype=torch.float64, **fields, **own) for own in ({}, {"order": OwnOrder()}))
        x = all_tokens(ours, torch.float64)
        for layer in ours, plain:
            layer.x = x.clone().requires_grad_()
            layer.y = layer(layer.x)
            layer.y.square().sum().backward()
        require_near(ours.y.detach(), plain.y.detach(), torch.float64, "output")
        require_near(ours.x.grad, plain.x.grad, torch.float64, "gradient of x")
        for (name, a), b in zip(ours.named_parameters(), plain.parameters()):
            require_near(a.grad, b.grad, torch.float64, name)

    def test_hooks_at_both_ends(self):
        """Twice the hidden states, and in the backward twice their gradient, as of a layer whose input is doubled."""
        alone = {**no_drops(TINY), "attention": False, "residual": False, "norm": "none", "dtype": torch.float64}
        points = []

        def start(phase, rows):
            points.append((phase, "start", tuple(rows.shape)))
            return 2 * rows if phase == "forward" else None

        def end(phase, rows):
            points.append((phase, "end", tuple(rows.shape)))
            if phase == "backward":
                rows *= 2

        hooked = MoELayer(**alone, hook={"before_moe_start": start, "before_moe_end": end})
        x = all_tokens(hooked, torch.float64).requires_grad_()
        hooked(x).square().sum().backward()
        rows = (16, 16)
        self.assertEqual(points, [("forward", "start", rows), ("forward", "end", rows), ("backward", "start", rows),
                                  ("backward", "end", rows)])
        plain, doubled = MoELayer(**alone), (2 * x.detach()).requires_grad_()
        plain(doubled).square().sum().backward()
        require_near(x.grad, 2 * doubled.grad, torch.float64, "gradient of x")
        for (name, a), b in zip(hooked.named_parameters(), plain.parameters()):
            require_near(a.grad, b.grad, torch.float64, name)
        points.clear()
        copy.deepcopy(hooked)(x)
        self.assertEqual(len(points), 2, "a copy has the hook")

    def test_refusals(self):
        for own, error, line in (
                ({"hook": {"before_lunch": print}}, ValueError, "hook: found the point 'before_lunch', expected some"),
                ({"hook": print}, TypeError, "hook: found a builtin_function_or_method, expected functions by"),
                ({"order": print}, TypeError, "order: found a builtin_function_or_method, expected an object with"),
                ({"dispatcher": 3}, TypeError, "dispatcher: found a int, expected a function"),
                ({"order": OwnOrder(), "gate": "softmoe"}, ValueError, "gate softmoe, expected one that doesn't mix"),
                ({"hook": "none2"}, ValueError, "hook: unknown 'none2', expected one of: none, bf16")):
            with self.assertRaisesRegex(error, f"^(MoELayer: )?.*{line}"):
                MoELayer(**{**TINY, **own})

        class Broken(OwnOrder):
            def order(self, tokens, numbers, rows):
                return found(tokens)

        x = torch.randn(16, 16)
        for found, error, line in ((lambda t: t[:1], ValueError, r"^order: found shape \(1, 16\), expected \("),
                                   (lambda t: 3, TypeError, "^order: found a int, expected a tensor"),
                                   (lambda t: layer(t), RuntimeError, "own part calls")):
            layer = MoELayer(**TINY, order=Broken())
            with self.assertRaisesRegex(error, line):
                layer(x)
        for found, error, line in ((lambda t: t[:1], ValueError, "^before_moe_start: found a tensor of torch.float32"),
                                   (lambda t: 3, TypeError, "^before_moe_start: found a int, expected a tensor or"),
                                   (lambda t: 1 / 0, ZeroDivisionError, "division")):
            layer = MoELayer(**TINY, hook={"before_moe_start": lambda phase, rows: found(rows)})
            with self.assertRaisesRegex(error, line):
                layer(x)


class Plans(unittest.TestCase):
    """What `tune` recommends runs."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.records = os.path.join(scratch.name, "plans.jsonl")
        self.document = os.path.join(scratch.name, "plan.json")

    def test_records_and_plan_files(self):
        answer = plan.tune(cluster="h100-1x1", nearest=True, dtype="float64", schedule="fsmoe", records=self.records,
                           **no_drops(TINY))
        made = output_of("export", "plan", self.records, "--quiet")
        pathlib.Path(self.document).write_text(made)
        expected = MoELayer(schedule=answer.use.schedule, dtype=torch.float64, degrees=(
            answer.use.degree_forward, answer.use.degree_backward), **no_drops(TINY))
        x = all_tokens(expected, torch.float64)
        for path in self.records, self.document, pathlib.Path(self.document):
            layer = MoELayer(plan=path)
            self.assertIn(f"{answer.use.schedule}, r_f {answer.use.degree_forward}", repr(layer))
            torch.testing.assert_close(layer(x), expected(x), rtol=0, atol=0)
            os.unlink(path) if path == pathlib.Path(self.document) else None
        torch.testing.assert_close(copy.deepcopy(layer)(x), expected(x), rtol=0, atol=0)

    def test_of_other_ranks(self):
        plan.tune(cluster="testbed-a", nearest=True, records=self.records, schedule="fsmoe", **no_drops(TINY))
        with self.assertRaisesRegex(ValueError, r"found a plan of \d+ x \d+ ranks, expected one of 1 x 1"):
            MoELayer(plan=self.records)


class AutoPlans(unittest.TestCase):
    """plan="auto" measures, tunes and goes on."""

    def test_trains_as_with_a_plan(self):
        require_auto({**TINY, **SWIGLU})
        require_auto({**TINY, "gate": OwnGate(torch.float64), "expert": OwnExpert, "order": OwnOrder()})

    def test_ranks_schedules_by_the_parts_times(self):
        class Slow(OwnExpert):
            def forward(self, rows):
                time.sleep(0.002)
                return super().forward(rows)

        layer = MoELayer(**TINY, dtype=torch.float64, plan="auto", expert=Slow)
        x = all_tokens(layer, torch.float64)
        while not layer.tuning()["decided"]:
            layer(x).sum().backward()
            layer(x)
        seconds = {(row["row"], row["chunks"]): row["seconds"] for row in layer.tuning()["rows"]}
        for chunks in 1, 2, 4:  # each calls all four experts
            self.assertGreater(seconds["task expert:gpt forward float64", chunks], 4 * 0.002)
        best = layer.tuning()["ranking"][0]
        self.assertGreater(best["predicted_s"], 4 * 0.002)
        self.assertEqual(best["degree_forward"], 1)

    def test_copies_and_plans(self):
        layer = MoELayer(**TINY, plan="auto")
        self.assertEqual(layer.tuning(), {"decided": False, "steps": 0, "rows": [], "ranking": []})
        self.assertIsNone(MoELayer(**TINY).tuning())
        x = torch.randn(16, 16)
        for _ in range(3):
            layer(x).sum().backward()
        layer(x)
        self.assertEqual(layer.tuning()["steps"], 3)
        self.assertEqual(copy.deepcopy(layer).tuning()["steps"], 0, "a copy measures anew")
        with torch.no_grad():
            layer(x)
        self.assertEqual(layer.tuning()["steps"], 3, "forwards alone are no steps")
        while not layer.tuning()["decided"]:
            layer(x).sum().backward()
            layer(x)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(layer.tuning()["plan"], file)
            same = MoELayer(plan=path)
        same.load_state_dict(layer.state_dict())
        torch.testing.assert_close(same(x), layer(x), rtol=0, atol=0)
        self.assertEqual(repr(same), repr(layer))

    def test_older_forwards(self):
        """Graphs of a plan that was replaced still have their backward."""
        layer = MoELayer(**{**TINY, "gate": OwnGate(torch.float64)}, dtype=torch.float64, plan="auto", expert=OwnExpert)
        x = all_tokens(layer, torch.float64)
        plans = set()
        for _ in range(12):
            older = layer(x)
            plans.add(repr(layer))
            layer(x).square().sum().backward()
            layer.zero_grad()
            layer(2 * x)
            older.square().sum().backward()
            found = {name: p.grad.clone() for name, p in layer.named_parameters()}
            layer.zero_grad()
            layer(x).square().sum().backward()
            for name, p in layer.named_parameters():
                torch.testing.assert_close(found[name], p.grad, rtol=1e-11, atol=1e-11)
        self.assertGreater(len(plans), 1)

    def test_refusals(self):
        for own in {"schedule": "fsmoe"}, {"degrees": 2}:
            with self.assertRaisesRegex(ValueError, "^MoELayer: found schedule or degrees beside plan='auto'"):
                MoELayer(**TINY, plan="auto", **own)


class BadInput(unittest.TestCase):
    def refused(self, error, line, call, *args, **options):
        with self.assertRaisesRegex(error, line) as caught:
            call(*args, **options)
        self.assertEqual(str(caught.exception).count("\n"), 0, caught.exception)

    def test_layers(self):
        for line, options in {
            r"^MoELayer: model_dims: found unknown key .*did you mean": {"model_dims": 16},
            r"^MoELayer: batch: found 0, expected": {"batch": 0},
            r"^MoELayer: batch: found 'two', expected": {"batch": "two"},
            r"fsmo.*expected": {"schedule": "fsmo"},
            r"^MoELayer: gate: found 'x'|gate.*'x'": {"gate": "x"},
            r"^MoELayer: losses: found 'max', expected": {"losses": "max"},
            r"^MoELayer: degree_forward: found 0, expected": {"degrees": 0},
            r"^MoELayer: degrees: found 3 numbers": {"degrees": (1, 2, 3)},
            r"^MoELayer: degree_forward: found 100, expected at most \d+: a chunk has a row": {"degrees": 100},
            r"16": {"dtype": torch.float16},
            r"int32": {"dtype": torch.int32},
            r"ep": {"ep": 3},
            r"^MoELayer: timeout: found -1, expected a number of seconds above 0$": {"timeout": -1},
            r"^MoELayer: timeout: found 0, expected": {"timeout": 0},
            r"^MoELayer: ranks_per_node: found 'two', expected a whole number >= 0$": {"ranks_per_node": "two"},
            r"^MoELayer: ranks_per_node: found -1, expected": {"ranks_per_node": -1},
            r"^MoELayer: ranks_per_node: found \[2\], expected": {"ranks_per_node": [2]},
            r"^MoELayer: timeout: found nan, expected": {"timeout": math.nan},
            r"^MoELayer: timeout: found '5', expected": {"timeout": "5"},
            r"^MoELayer: capacity_factor: found nan, expected a finite number": {"capacity_factor": math.nan},
        }.items():
            with self.subTest(line=line):
                self.refused(ValueError, line, MoELayer, **{**TINY, **options})

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "no NumPy")
    def test_numbers_of_numpy(self):
        import numpy
        layer = MoELayer(**{**TINY, "batch": numpy.int64(2), "capacity_factor": numpy.float32(1.5)}, seed=numpy.int8(1))
        self.assertEqual(repr(layer), repr(MoELayer(**TINY, capacity_factor=1.5)))

    def test_other_types(self):
        self.refused(TypeError, "^MoELayer: batch: found a set, expected a number or a word$", MoELayer, batch={2})
        self.refused(TypeError, "^MoELayer: gate: found a type, expected a number or a word$", MoELayer, gate=OwnGate)

    def test_inputs(self):
        layer = MoELayer(**TINY)
        x = torch.randn(16, 16)
        self.refused(ValueError, r"^x: found shape \(15, 16\), expected \(16, 16\)$", layer, x[:15])
        self.refused(ValueError, r"^x: found shape \(16\), expected \(16, 16\)$", layer, x[0])
        self.refused(TypeError, r"^x: found elements of type Double, expected Float, the layer's dtype$", layer,
                     x.double())
        self.refused(ValueError, r"^x: found a tensor on meta, expected the CPU's$", layer, x.to("meta"))
        self.refused(TypeError, r"^x: found a list, expected a tensor$", layer, [x])
        dense = r"^{}: found a tensor that is sparse, nested or a transform's \(torch.func\), expected a dense one$"
        for other in x.to_sparse(), x.to_sparse_csr(), torch.nested.nested_tensor([x, x]):
            self.refused(ValueError, dense.format("x"), layer, other)
        self.refused(ValueError, dense.format("x"), torch.func.grad(lambda rows: layer(rows).sum()), x)
        self.refused(TypeError, r"^\w+: found elements of type Double, expected Float", layer.double(), x)
        layer = MoELayer(**TINY)
        layer.w1 = nn.Parameter(torch.zeros(2, 2))
        self.refused(ValueError, r"^w1: found shape \(2, 2\), expected \(4, 16, 24\)$", layer, x)
        layer.w1 = nn.Parameter(torch.zeros(4, 16, 24).to_sparse())
        self.refused(ValueError, dense.format("w1"), layer, x)
        layer.w1 = None
        self.refused(TypeError, r"^w1: found None, expected a parameter$", layer, x)

    def test_graphs(self):
        layer = MoELayer(**TINY, dtype=torch.float64)
        x = torch.randn(16, 16, dtype=torch.float64, requires_grad=True)
        y = layer(x).sum()
        y.backward()
        self.refused(RuntimeError, "backward through the graph a second time", y.backward)
        with self.assertRaisesRegex(RuntimeError, "create_graph"):
            torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        y = layer(x).sum()
        with torch.no_grad():
            layer.w1.add_(1)
        self.refused(RuntimeError, "modified by an inplace operation", y.backward)

    def test_plans(self):
        self.refused(FileNotFoundError, "nowhere.json", MoELayer, plan="nowhere.json")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            pathlib.Path(path).write_text('{"format": "moetune-plan", "version": 9}')
            self.refused(ValueError, "plan.json: version: found 9", MoELayer, plan=path)
            self.refused(ValueError, "none beside plan", MoELayer, plan=path, batch=2)

    def test_another_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "libmoetune_torch-1.2.3.so")
            library.touch()
            done = self.imported(MOETUNE_TORCH_LIBRARY=str(library))
            version = torch.__version__.split("+", maxsplit=1)[0]
            self.assertEqual(done.stderr.splitlines()[-1], "ImportError: moetune.torch: found torch "
                             f"{version}, expected 1.2.3, which it was built for")
            broken = library.with_name(f"libmoetune_torch-{version}.so")
            for line in "no such file", "too short":
                done = self.imported(MOETUNE_TORCH_LIBRARY=str(broken))
                self.assertRegex(done.stderr.splitlines()[-1].lower(), rf"^importerror: moetune.torch: .*{line}")
                broken.touch()

    def test_ranks_without_a_process_group(self):
        done = self.imported("; MoELayer()", WORLD_SIZE="2", RANK="0")
        self.assertIn("RuntimeError: MoELayer: found WORLD_SIZE=2 but no process group", done.stderr.splitlines()[-1])

    def imported(self, more="", **variables):
        path = os.pathsep.join(each for each in sys.path if each)
        return subprocess.run([sys.executable, "-c", f"from moetune.torch import MoELayer{more}"], capture_output=True,
                              text=True, check=False, env={**os.environ, "PYTHONPATH": path, **variables})


class Bench(unittest.TestCase):
    def test_prints_overhead(self):
        import torch_overhead
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), unittest.mock.patch.object(sys, "argv", ["torch_overhead.py", "2"]):
            torch_overhead.main()
        lines = printed.getvalue().splitlines()
        self.assertEqual(len(lines), 8)
        for line in lines[::2]:
            self.assertRegex(line, r"^\w+, degrees \d: .* runner \d+ us, of the module \d+ us more ")
        for line in lines[1::2]:
            self.assertRegex(line, r"^\w+, degrees \d: a forward leaves 1.\d\d MiB .* its backward 1.\d\d MiB ")

    def test_holds_nothing_beside_the_layer(self):
        """A forward leaves its output, a backward the gradient of x."""
        import torch_overhead
        for held in torch_overhead.held_bytes("fsmoe", 2):
            self.assertTrue(2**20 <= held < 2**20 + 2**17, held)

    def run_bench(self, *words, code=0, program=(sys.executable, "-m", "moetune.torch_bench"), **variables):
        """What a comparison of a tiny layer prints, or its line on stderr."""
        tiny = ["--batch", "2", "--seq", "8", "--model-dim", "16", "--hidden", "24", "--heads", "4", "--experts", "4"]
        done = subprocess.run([*program, *tiny, *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_beside_plain_pytorch(self):
        """The module moetune.torch_bench: verified, timed in turns, recorded."""
        quick = ["--rounds", "2", "--peers", "eager"]
        layers = [["--ffn", "mixtral", "--dtype", "float64"], ["--gate", "switch", "--top-k", "1"],
                  ["--capacity-factor", "0.5", "--dtype", "float64"],
                  ["--kv-heads", "2", "--rope-theta", "10000", "--causal", "false", "--capacity-factor", "none"]]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records", "bench.jsonl")
            for layer in layers:
                lines = self.run_bench(*layer, *quick, "--out", path).splitlines()
                self.assertRegex(lines[0], r"^MoELayer\(B2 L8 M16 .*worst difference \d")
                self.assertRegex(lines[1], r"^moetune .* 1.000 times moetune's")
                self.assertRegex(lines[2], r"^eager .* [\d.]+ times moetune's")
            records = list(plan.read_records(path))
            self.assertEqual([case.key for case in records], ["torch/moetune", "torch/eager"])
            for case in records:
                self.assertEqual(case.status, "ok")
                times = [values[0] for values in case.extra["samples"]["total_s"]]
                self.assertAlmostEqual(case.summary["total_s"], sum(times) / 2)
            ours, eager = (case.summary["total_s"] for case in records)
            self.assertAlmostEqual(records[1].summary["over_moetune"], eager / ours)
            self.assertIn("SAME: 2 of 2", output_of("compare", path, path))
        for words, line in {("--gate", "sigmoid"): "gate: found 'sigmoid', expected switch or gshard, which plain "
                            "PyTorch has here", ("--peers", "jax"): "--peers: found 'jax', expected some of eager, "
                            "compile, tutel", ("--hidden",): "found '--hidden' without a value, expected one"}.items():
            self.assertEqual(self.run_bench(*words, code=2), f"moetune.torch_bench: {line}\n")
        self.assertIn("found the field 'ep', expected some of", self.run_bench("--ep", "2", code=2))

    def test_drops_are_plain(self):
        """Tokens without a row are those that plain PyTorch leaves out: an expert's first ones stay."""
        fields = {**TINY, "capacity_factor": 0.5, "dtype": "float64"}
        result = moetune.torch_bench.compare(fields, rounds=1, peers=("eager",))
        self.assertLess(result["worst_error"], 1e-12)
        with unittest.mock.patch.object(PlainLayer, "capacity", lambda layer, tokens: tokens):
            wrong = moetune.torch_bench.compare(fields, rounds=1, peers=("eager",))
        self.assertGreater(wrong["worst_error"], 1e-2)
        self.assertFalse(wrong["ways"]["eager"]["total_s"], "what disagrees is not timed")

    def test_peers(self):
        """torch.compile takes part where there is a compiler; what is not installed is said in a line."""
        if all(shutil.which(name) is None for name in ("g++", "clang++", "c++")):
            self.assertRegex(self.run_bench("--rounds", "1"), r"\ncompile +left out: found no C\+\+ compiler")
            return
        printed = self.run_bench("--rounds", "1", "--capacity-factor", "none")
        self.assertRegex(printed, r"\ncompile +forward .* times moetune's")
        self.assertRegex(printed, r"\ntutel +" + (r"forward .* times moetune's" if importlib.util.find_spec("tutel")
                                                  else "left out: not installed"))
        with tempfile.TemporaryDirectory() as folder:
            without = self.run_bench("--rounds", "1", "--peers", "compile", PATH=folder)
            self.assertIn("compile   left out: found no C++ compiler", without)

    def test_verb(self):
        """`layerbench --against torch` hands the layer over."""
        verb = (program_path(), "layerbench", "--against", "torch")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.jsonl")
            self.run_bench("--gate", "switch", "--capacity-factor", "none", "--schedule", "fsmoe", "--degree-backward",
                           "2", "--iterations", "2", "--threads", "1", "--out", path, program=verb, PATH=folder,
                           MOETUNE_PYTHON=sys.executable)
            records = list(plan.read_records(path))
            self.assertEqual(records[1].key, "torch/eager")
            self.assertEqual(len(records[1].extra["samples"]["total_s"]), 2)
            given = {"gate": "switch", "model_dim": 16, "capacity_factor": "none", "threads": 1}
            self.assertEqual({name: records[0].parameters[name] for name in given}, given)
        line = self.run_bench("--aux-loss", "0.5", code=2, program=verb, MOETUNE_PYTHON=sys.executable)
        self.assertEqual(line, "moetune.torch_bench: aux_loss: found 0.5, expected 0, which plain PyTorch has here\n")
        line = self.run_bench(code=2, program=verb, MOETUNE_PYTHON="/nowhere/python")
        self.assertEqual(line, "moetune: --against torch: /nowhere/python: No such file or directory, expected Python "
                         "with torch; MOETUNE_PYTHON names another\n")
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder, "libmoetune_torch-1.2.3.so")
            library.touch()
            line = self.run_bench(code=2, program=verb, MOETUNE_PYTHON=sys.executable,
                                  MOETUNE_TORCH_LIBRARY=str(library))
        self.assertRegex(line, r"^moetune.torch_bench: moetune.torch: found torch \S+, expected 1.2.3, .*\n$")

    def test_runner_takes_part_of_the_time(self):
        layer = MoELayer(**TINY)
        begin = time.perf_counter()
        layer(torch.randn(16, 16)).sum().backward()
        taken = time.perf_counter() - begin
        forward, backward = layer.runner_seconds()
        self.assertTrue(0 < forward < taken - backward < taken, (forward, backward, taken))


class Page(unittest.TestCase):
    def test_python_runs(self):
        sys.path.insert(0, str(ROOT / "tests/docs"))
        from pages import Page as PageOf
        for page in map(PageOf, ("docs/torch.md", "docs/torch_parts.md")):
            blocks = [block for block in page.blocks if block.language == "python" and "moetune.torch" in block.text
                      and "transformers" not in block.text]  # transformers_test.py runs those
            self.assertTrue(blocks)
            for block in blocks:
                done = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True, check=False,
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
                self.assertEqual(done.stdout, page.output_of(block).text, done.stderr)

    def test_examples_train(self):
        for example in "train_torch.py", "train_torch_parts.py":
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                   "2", ROOT / "examples" / example], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                                       "OMP_NUM_THREADS": "1"})
            losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
            self.assertEqual(len(losses), 6, done.stderr)
            self.assertLess(losses[-1], 0.6 * losses[0], example)


# ---- several processes

def require_own_buffers():
    """DistributedDataParallel sets no buffer of an expert to that of rank 0's expert."""
    class Counting(OwnExpert):
        def __init__(self):
            super().__init__()
            self.register_buffer("drawn", torch.rand(1))

    model = nn.Sequential(nn.Linear(16, 16, dtype=torch.float64), MoELayer(**TINY, dtype=torch.float64, mp=1, esp=1,
                          ep=distributed.get_world_size(), expert=Counting))
    drawn = {number: expert.drawn.item() for number, expert in model[1].experts.items()}
    data_parallel(model)(torch.randn(len(model[1].tokens), 16, dtype=torch.float64)).sum().backward()
    assert drawn == {number: expert.drawn.item() for number, expert in model[1].experts.items()}, drawn


def require_own_parts(spread):
    """An order, a dispatcher and a hook of a user's among ranks; the hook's points are those of each exchange."""
    for schedule, degrees in ("tutel", 2), ("fsmoe", (2, 1)):
        for fields in TINY, {**TINY, **SWIGLU}:
            calls = []

            def counted(point, change):
                return lambda phase, rows: (calls.append((phase, point)), change(phase, rows))[1]

            hook = {point: counted(point, change) for point, change in SCALED.items()}
            require_as_plain(fields, torch.float64, schedule=schedule, degrees=degrees, order=OwnOrder(),
                             dispatcher=own_exchange, hook=hook, **spread)
            chunks = (degrees, degrees) if schedule == "tutel" else degrees
            for phase, point in calls:
                assert calls.count((phase, point)) == chunks[phase == "backward"], (phase, point, calls)
            assert len({point for _, point in calls}) in (0, 4), calls  # no exchange if all experts are on each rank
    try:
        MoELayer(**TINY, schedule="parm", dispatcher=own_exchange, **spread)
    except ValueError as error:
        assert "expected one that exchanges rows over EP alone" in str(error), error


def refused_line(error, call, *args, **options):
    """The line of an exception that a call raises."""
    try:
        call(*args, **options)
    except error as caught:
        assert "\n" not in str(caught), caught
        return str(caught)
    raise AssertionError(f"{call}, {args}, {options}: no {error.__name__}")


def require_refusals_together():
    """What ranks don't have alike, or refuse alike, is one line on all of them, and leaves them as they were."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    odd = rank == ranks - 1
    layer = MoELayer(**TINY)
    x = torch.randn(len(layer.tokens), 16)
    mine = [refused_line(RuntimeError, MoELayer, **{**TINY, **other}) for other in (
        {"seed": 1 + odd}, {"losses": ["sum", "mean"][odd]}, {"hidden": 24 + 8 * odd}, {"experts": [4, 8][odd]},
        {"dtype": [torch.float32, torch.float64][odd]}, {"schedule": ["tutel", "fsmoe"][odd]},
        {"degrees": [1, 2][odd]}, {"gate": "switch" if odd else OwnGate(torch.float32)}, {"top_k": [2, 1][odd]})]
    assert all("rank 0" in line and f"rank {ranks - 1}" in line for line in mine), mine
    mine.append(refused_line(ValueError, MoELayer, **{**TINY, "batch": 0}))
    mine.append(refused_line(ValueError, layer, x[:1]))
    mine.append(refused_line(TypeError, layer, x.double()))
    lines = [None] * ranks
    distributed.all_gather_object(lines, mine)
    assert all(each == mine for each in lines), lines
    layer(x).sum().backward()


def on_ranks():
    """What every rank of a launch runs."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    spreads = [{}] if ranks == 2 else [{}, {"ranks_per_node": 2}, {"ranks_per_node": 2, "mp": 1, "ep": 4, "esp": 1}]
    for spread in spreads:
        for schedule, degrees in SCHEDULES:
            for fields in TINY, {**TINY, **SWIGLU}:
                require_as_plain(fields, torch.float64, schedule=schedule, degrees=degrees, **spread)
            torch.manual_seed(rank)  # its parameters are rank 0's
            own = {**TINY, "gate": OwnGate(torch.float64)}
            require_as_plain(own, torch.float64, schedule=schedule, degrees=degrees, **spread)
            if ranks == 2 or spread.get("esp") == 1:
                experts = {**TINY, "expert": OwnExpert}
                require_as_plain(experts, torch.float64, schedule=schedule, degrees=degrees, **spread)
        require_own_parts(spread)
        require_auto(TINY, **spread)
        require_as_plain(TINY, torch.float32, schedule="fsmoe", degrees=2, **spread)
        require_same_training(TINY, torch.float64, schedule="fsmoe", degrees=2, **spread)
    require_ddp(torch.float64)
    require_own_buffers()
    cluster, spread = ("h100-1x2", {}) if ranks == 2 else ("h100-2x2-ib-400", {"ranks_per_node": 2})
    with tempfile.TemporaryDirectory() as folder:
        records = os.path.join(folder, "tuned.jsonl")
        best = plan.tune(cluster=cluster, nearest=True, dtype="float64", records=records, **no_drops(TINY)).use
        require_as_plain(TINY, torch.float64, plan=records, **spread)
        print(f"plan of tune: {best.schedule}", flush=True)
    if ranks == 4:  # two nodes whose ranks have all experts: replicas
        require_as_plain({**TINY, "expert": OwnExpert}, torch.float64, ranks_per_node=2, mp=1, ep=2, esp=1)
        try:
            MoELayer(**TINY, ranks_per_node=2, expert=OwnExpert)
        except ValueError as error:
            assert "found experts of Python's with ESP 2, expected 1" in str(error), error
        else:
            raise AssertionError("experts over ESP")
    require_refusals_together()
    print(f"rank {rank} of {ranks}: ok", flush=True)
    distributed.destroy_process_group()


def leave():
    """Ends, rank 1 later, without the process group that the layer is of."""
    distributed.init_process_group("gloo")
    layer = MoELayer(**TINY)
    layer(torch.randn(len(layer.tokens), 16))
    distributed.destroy_process_group()
    time.sleep(int(os.environ["RANK"]))


def lose_a_rank():
    """Rank 1 ends without a word; the other gets an exception, and lives on."""
    distributed.init_process_group("gloo")
    layer = MoELayer(**TINY, dtype=torch.float64, timeout=20)
    x = torch.randn(len(layer.tokens), 16, dtype=torch.float64)
    layer(x).sum().backward()
    if distributed.get_rank() == 1:
        os._exit(9)
    begin = time.monotonic()
    try:
        layer(x).sum().backward()
    except RuntimeError as error:
        line = str(error)
    assert time.monotonic() - begin < 60
    assert "\n" not in line and "rank 0 in" in line and "rank 1" in line, line
    time.sleep(5)
    try:
        layer(x)
    except RuntimeError as error:
        print(f"lived on: {error}", flush=True)
    os._exit(0)  # torch's own group waits for the lost rank


class FailingGate(OwnGate):
    def forward(self, hidden):
        if distributed.get_rank() == 1:
            raise KeyError("no such expert")
        return super().forward(hidden)


class FailingBackward(nn.Module):
    """A user's expert whose backward fails on rank 1."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows):
            return 2 * rows

        @staticmethod
        def backward(ctx, d_rows):
            if distributed.get_rank() == 1:
                raise KeyError("no such gradient")
            return 2 * d_rows

    def forward(self, rows):
        return self.Double.apply(rows)


def saved_and_lost(layer, x):
    """A backward whose saved tensors a user's hook fails to bring back on rank 1."""
    def lose(kept):
        raise KeyError("nothing saved")
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lose)
    with hooks if distributed.get_rank() == 1 else contextlib.nullcontext():
        y = layer(x)
    y.sum().backward()


def backward_of_changed(layer, x):
    y = layer(x)
    if distributed.get_rank() == 1:
        with torch.no_grad():
            layer.w1 *= 2
    y.sum().backward()


def refuse_alone():
    """What rank 1 alone refuses ends rank 0 at once, by rank 1's line; each case has a process group of its own."""
    rank = int(os.environ["RANK"])
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, rank == 0)
    odd = rank == 1
    for number, (error, line, call, *told) in enumerate((
            (ValueError, "x: found shape (3, 16), expected (16, 16)", lambda layer, x: layer(x[:3] if odd else x)),
            (ValueError, "MoELayer: batch: found 0", lambda layer, x: MoELayer(**{**TINY, "batch": 2 - 2 * odd})),
            (ValueError, "MoELayer: timeout: found -1, expected a number of seconds above 0",
             lambda layer, x: MoELayer(**TINY, timeout=-1 if odd else 600)),
            (KeyError, "no such expert", lambda layer, x: MoELayer(**{**TINY, "gate": FailingGate(torch.float32)})(x)),
            (RuntimeError, "the layer's backward: found create_graph=True",
             lambda layer, x: layer(x).sum().backward(create_graph=odd)),
            (RuntimeError, "modified by an inplace operation", backward_of_changed),
            (KeyError, "no such gradient",
             lambda layer, x: MoELayer(**TINY, expert=FailingBackward)(x).sum().backward()),
            (KeyError, "nothing saved", saved_and_lost, "an exception in the layer's backward"))):
        distributed.init_process_group("gloo", store=distributed.PrefixStore(str(number), store), rank=rank,
                                       world_size=2)
        layer = MoELayer(**TINY)
        x = torch.randn(len(layer.tokens), 16)
        begin = time.monotonic()
        found = ""
        try:
            call(layer, x)
        except error if odd else RuntimeError as caught:
            found = str(caught)
        assert found, f"nothing was refused, expected {line}"
        print(f"{found.splitlines()[0]} ({time.monotonic() - begin:.1f} s)", flush=True)
        assert time.monotonic() - begin < 60, found
        later, told = refused_line(RuntimeError, layer, x), told[0] if told else line
        for text in (later,) if odd else (found, later):
            assert "rank 1 failed: " in text and told in text, text
        assert not odd or line in found, found
        distributed.destroy_process_group()


class Processes(unittest.TestCase):
    def launched(self, task, ranks, *launcher):
        names = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                               str(ranks), *launcher, __file__, task], capture_output=True, text=True, check=False,
                              env=names, timeout=1500)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_torchrun_ranks(self):
        for ranks in 2, 4:
            printed = self.launched("on_ranks", ranks)
            for rank in range(ranks):
                self.assertIn(f"rank {rank} of {ranks}: ok", printed)

    def alone(self, task):
        """Two ranks without a launcher: rank 0 serves the store. Returns their exit codes, outputs and errors."""
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        ranks = [subprocess.Popen([sys.executable, __file__, task], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                                                  "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                                  "MASTER_PORT": str(port)}) for rank in range(2)]
        said = [rank.communicate(timeout=300) for rank in ranks]
        return [rank.returncode for rank in ranks], *zip(*said)

    def test_a_rank_dies(self):
        codes, printed, errors = self.alone("lose_a_rank")
        self.assertEqual(codes, [0, 9], errors)
        self.assertIn("lived on: rank 0", printed[0])
        print(printed[0], end="")

    def test_a_rank_refuses(self):
        codes, printed, errors = self.alone("refuse_alone")
        self.assertEqual(codes, [0, 0], errors)
        self.assertEqual([text.count("\n") for text in printed], [8, 8], printed)

    def test_ranks_leave_in_silence(self):
        codes, _, errors = self.alone("leave")
        self.assertEqual(codes, [0, 0], errors)
        for error in errors:
            self.assertNotIn("TCPStore", error)


if __name__ == "__main__":
    if sys.argv[1:] in (["on_ranks"], ["leave"], ["lose_a_rank"], ["refuse_alone"]):
        globals()[sys.argv[1]]()
    else:
        unittest.main()
