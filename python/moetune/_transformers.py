"""MoE blocks of Hugging Face transformers' models, computed by MoELayer."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import distributed, nn
from torch.nn import functional

_BLOCKS = ("MixtralSparseMoeBlock", "Qwen3MoeSparseMoeBlock", "OlmoeSparseMoeBlock", "DeepseekV3MoE")


def moe_blocks(model: nn.Module) -> List[Tuple[str, nn.Module]]:
    """Returns the blocks of a model that can be replaced, with their names."""
    blocks = [(name, module) for name, module in model.named_modules() if type(module).__name__ in _BLOCKS]
    if not blocks:
        raise ValueError(f"replace_moe: found a {type(model).__name__} without MoE blocks, expected some of "
                         f"{', '.join(_BLOCKS)}")
    for name, block in blocks:
        if not hasattr(block.experts, "gate_up_proj"):
            raise ValueError(f"replace_moe: {name}: found experts that are modules of their own, expected the stacked "
                             "weights of transformers 5")
        activation = type(block.experts.act_fn).__name__
        if activation not in ("SiLU", "SiLUActivation"):
            raise ValueError(f"replace_moe: {name}: found experts with {activation}, expected SiLU")
        if getattr(block, "jitter_noise", 0):
            raise ValueError(f"replace_moe: {name}: found router_jitter_noise {block.jitter_noise}, expected 0")
    return blocks


def layer_fields(document: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments of MoELayer for a layer without attention under a plan."""
    layer, parallel = document["layer"], document["parallel"]
    kept = ("batch", "seq", "model_dim", "hidden", "experts", "top_k", "order", "dispatcher", "hook")
    return {**{name: layer[name] for name in kept}, **{name: parallel[name] for name in ("mp", "ep", "esp")},
            "schedule": document["schedule"],
            "degrees": (document["degree_forward"], document["degree_backward"])}


def refuse_router_logits(model: nn.Module, _: Any, arguments: Dict[str, Any]) -> None:
    """A forward hook that refuses requests for router logits, which routers inside the layers do not record."""
    asked = arguments.get("output_router_logits")
    if asked or (asked is None and getattr(getattr(model, "config", None), "output_router_logits", False)):
        raise ValueError("replace_moe: found output_router_logits=True, expected False: routers run inside the layers")


class Router(nn.Module):
    """A block's router as a gate of MoELayer."""

    def __init__(self, router: nn.Module):
        super().__init__()
        self.router = router

    def forward(self, hidden: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        _, weights, experts = self.router(hidden)
        return experts, weights


_groups: Dict[int, Any] = {}  # this rank's MP groups, by size


def _mp_group(size: int) -> Any:
    """Returns the process group of this rank's `size` neighbours. All ranks must call it at the same point."""
    if size not in _groups:
        _groups[size] = distributed.new_subgroups(size)[0]
    return _groups[size]


def _gathered(rows: torch.Tensor, size: int) -> torch.Tensor:
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(size)]
    distributed.all_gather(parts, rows.contiguous(), group=_mp_group(size))
    return torch.cat(parts)


def _own(rows: torch.Tensor, size: int) -> torch.Tensor:
    return rows.chunk(size)[distributed.get_rank() % size]


class _Gather(torch.autograd.Function):
    """Gathers the rows of an MP group, whose ranks have different rows. The layer computes all rows on each rank and
    counts their loss once; `scale` turns its gradients into those of the ranks' losses."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, size: int, scale: float) -> torch.Tensor:
        ctx.size, ctx.scale = size, scale
        return _gathered(rows, size)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[torch.Tensor, None, None]:
        return _own(gradients[0], ctx.size) / ctx.scale, None, None


class _TakeOwn(torch.autograd.Function):
    """Takes this rank's rows from those that _Gather made; its backward does the reverse."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, size: int, scale: float) -> torch.Tensor:
        ctx.size, ctx.scale = size, scale
        return _own(rows, size).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[torch.Tensor, None, None]:
        return _gathered(gradients[0], ctx.size) * ctx.scale, None, None


class MoEBlock(nn.Module):
    """One MoE block of transformers, whose router and experts a MoELayer computes. Its state dict has the block's names
    and shapes, for the experts of this rank. `tokens`: number of this rank's tokens; some schedules need those of all
    `mp` ranks of its MP group."""

    def __init__(self, block: nn.Module, make_layer: Callable[[nn.Module], nn.Module], tokens: int, mp: int,
                 losses: str):
        super().__init__()
        self.tokens, self.mp = tokens, mp
        self.scale = 1 / mp if losses == "mean" else 1.0
        gate_up, down = block.experts.gate_up_proj, block.experts.down_proj
        self.layer = make_layer(Router(block.gate))
        if mp > 1:
            _mp_group(mp)
        self.shared_experts = getattr(block, "shared_experts", None)
        with torch.no_grad():
            for name, value in self._own_parts(gate_up, down).items():
                weight = self.layer.get_parameter(name)
                weight.copy_(value)
                weight.requires_grad_((down if name == "w2" else gate_up).requires_grad)
        self.register_state_dict_post_hook(MoEBlock._name_as_block)
        self.register_load_state_dict_pre_hook(MoEBlock._name_as_layer)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        empty = self.tokens - len(rows)
        if empty < 0:
            raise ValueError(f"replace_moe: found {len(rows)} tokens, expected at most {self.tokens}: batch x seq"
                             + (f" / MP {self.mp}" if self.mp > 1 else ""))
        padded = functional.pad(rows, (0, 0, 0, empty)) if empty else rows
        if len(self.layer.tokens) > self.tokens:  # the schedule needs the tokens of the whole MP group
            every = self.layer(_Gather.apply(padded, self.mp, self.scale))
            output = _TakeOwn.apply(every, self.mp, self.scale)
        else:
            output = self.layer(padded)
        output = output[:len(rows)].view(hidden_states.shape)
        return output if self.shared_experts is None else output + self.shared_experts(hidden_states)

    def _own_parts(self, gate_up: torch.Tensor, down: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Returns this rank's weights of the layer from the weights of a block, which are those of all experts or,
        as in `state_dict`, only this rank's."""
        parts: Dict[str, torch.Tensor] = {}
        gate, up = gate_up.transpose(1, 2).chunk(2, -1)
        for name, value in ("w1", gate), ("w3", up), ("w2", down.transpose(1, 2)):
            if value.shape != self.layer.get_parameter(name).shape:
                value = value[tuple(slice(axis.start, axis.stop) for axis in self.layer.shards()[name])]
            parts[name] = value
        return parts

    @staticmethod
    def _name_as_block(module: nn.Module, state: Dict[str, Any], prefix: str, _: Any) -> None:
        gate, up, down = (state.pop(f"{prefix}layer.{name}") for name in ("w1", "w3", "w2"))
        state[f"{prefix}experts.gate_up_proj"] = torch.cat((gate, up), -1).transpose(1, 2).contiguous()
        state[f"{prefix}experts.down_proj"] = down.transpose(1, 2).contiguous()
        own = f"{prefix}layer.gate.router."
        for key in [key for key in state if key.startswith(own)]:
            state[f"{prefix}gate.{key[len(own):]}"] = state.pop(key)

    @staticmethod
    def _name_as_layer(module: "MoEBlock", state: Dict[str, Any], prefix: str, *_: Any) -> None:
        experts = [f"{prefix}experts.gate_up_proj", f"{prefix}experts.down_proj"]
        if all(name in state for name in experts):
            for name, value in module._own_parts(*(state.pop(each) for each in experts)).items():
                state[f"{prefix}layer.{name}"] = value.contiguous()
        gate = f"{prefix}gate."
        for key in [key for key in state if key.startswith(gate)]:
            state[f"{prefix}layer.gate.router.{key[len(gate):]}"] = state.pop(key)
