"""A MoELayer against the same layer in PyTorch, on one rank: as eager PyTorch computes it, compiled, and by Tutel.

    python3 -m moetune.torch_bench --batch 4 --seq 512 --model-dim 1024 --hidden 2048 --heads 16 --experts 4

Output and gradients are compared first. Then all take turns, forward and backward, and the ratios are printed and
recorded. What is not installed is left out with a line.
"""
from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import platform
import shutil
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

WRONG, BAD_INPUT = 3, 2
try:
    import torch
    from torch.nn import functional

    from moetune.torch import MoELayer
except ImportError as missing:
    if __name__ != "__main__":
        raise
    why = f"{sys.executable} has no torch" if missing.name == "torch" else missing
    print(f"moetune.torch_bench: {why}", file=sys.stderr)
    sys.exit(BAD_INPUT)

Weights = Dict[str, torch.Tensor]
Leaves = List[torch.Tensor]
Forward = Callable[[torch.Tensor], torch.Tensor]
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
PEERS = ("eager", "compile", "tutel")
# Defaults of MoELayer. Options that PlainLayer does not implement must have these values.
_DEFAULTS = {"batch": 4, "seq": 1024, "model_dim": 1024, "hidden": 4096, "heads": 16, "kv_heads": 0, "head_dim": 0,
             "rope_theta": 0, "experts": 1, "top_k": 2, "capacity_factor": 1.2, "causal": True, "gate": "gshard",
             "ffn": "gpt", "dtype": "float32", "order": "tutel", "dispatcher": "alltoall", "hook": "none",
             "norm": "by-ffn", "residual": True, "bias": False, "shared_hidden": 0, "aux_loss": 0, "z_loss": 0}
_CHOICES = {"gate": ("switch", "gshard"), "ffn": ("gpt", "mixtral"), "dtype": tuple(TOLERANCE),
            "norm": ("by-ffn", "layernorm", "rmsnorm"),
            **{name: (_DEFAULTS[name],)
               for name in ("hook", "residual", "bias", "shared_hidden", "aux_loss", "z_loss")}}


class PlainLayer:
    """The layer in eager PyTorch: the rows of each expert are gathered, multiplied and added up. Gates `switch` and
    `gshard` without noise, experts `gpt` and `mixtral`."""

    def __init__(self, fields: Dict[str, Any], weights: Weights):
        self.fields, self.weights = {**_DEFAULTS, **fields}, weights
        if self.fields["norm"] == "by-ffn":
            self.fields["norm"] = "rmsnorm" if self.fields["ffn"] == "mixtral" else "layernorm"

    def norm(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        gain = self.weights[name]
        if self.fields["norm"] == "rmsnorm":
            return functional.rms_norm(rows, rows.shape[-1:], gain, 1e-5)
        return functional.layer_norm(rows, rows.shape[-1:], gain, None, 1e-5)

    def turned(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns queries or keys, rotated by their positions."""
        seq, width = rows.shape[-2:]
        if self.fields["rope_theta"] == 0:
            return rows
        speeds = self.fields["rope_theta"] ** (-torch.arange(width // 2, dtype=rows.dtype) / (width // 2))
        angles = torch.arange(seq, dtype=rows.dtype)[:, None] * speeds
        real, imaginary = rows.chunk(2, -1)
        return torch.cat((real * angles.cos() - imaginary * angles.sin(),
                          real * angles.sin() + imaginary * angles.cos()), -1)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        w, seq, heads = self.weights, self.fields["seq"], self.fields["heads"]
        width = w["wq"].shape[1] // heads
        q, k, v = (part.view(-1, seq, part.shape[1] // width, width).transpose(1, 2)
                   for part in (x @ w[name] for name in ("wq", "wk", "wv")))
        mixed = functional.scaled_dot_product_attention(self.turned(q), self.turned(k), v,
                                                        is_causal=self.fields["causal"],
                                                        enable_gqa=k.shape[1] != heads)
        return mixed.transpose(1, 2).reshape(x.shape[0], -1) @ w["wo"]

    def routed(self, rows: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Returns the experts of each row, and their weights."""
        logits = rows @ self.weights["gate"].T
        chosen = logits.topk(self.fields["top_k"]).indices
        if self.fields["gate"] == "switch":
            return chosen, logits.softmax(-1).gather(1, chosen)
        return chosen, logits.gather(1, chosen).softmax(-1)

    def expert(self, number: int, rows: torch.Tensor) -> torch.Tensor:
        w = self.weights
        inner = rows @ w["w1"][number]
        inner = functional.gelu(inner) if "w3" not in w else functional.silu(inner) * (rows @ w["w3"][number])
        return inner @ w["w2"][number]

    def capacity(self, tokens: int) -> Optional[int]:
        """Returns the largest number of rows that an expert takes; None: no limit. First choices take precedence over
        second ones, and earlier tokens over later ones."""
        factor = self.fields["capacity_factor"]
        return None if factor is None else math.ceil(self.fields["top_k"] * factor * tokens / self.fields["experts"])

    def with_moe(self, out: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Returns `out` plus the MoE part's output for the rows."""
        chosen, weights = self.routed(rows)
        most = self.capacity(len(rows))
        for number in range(self.fields["experts"]):
            place, token = (chosen.T == number).nonzero(as_tuple=True)
            place, token = place[:most], token[:most]
            out = out.index_add(0, token, self.expert(number, rows[token]) * weights[token, place, None])
        return out

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x + self.attention(self.norm(x, "norm1"))
        return self.with_moe(hidden, self.norm(hidden, "norm2"))


class TutelLayer(PlainLayer):
    """The layer with the MoE part of the package tutel, which drops no tokens."""

    def __init__(self, fields: Dict[str, Any], weights: Weights):
        super().__init__(fields, weights)
        from tutel import moe as tutel_moe
        fields = self.fields
        experts = {"num_experts_per_device": fields["experts"], "hidden_size_per_expert": fields["hidden"]}
        if fields["ffn"] == "gpt":
            experts.update(type="ffn", activation_fn=functional.gelu, has_fc1_bias=False, has_fc2_bias=False)
        else:
            experts.update(type="llama_ffn")
        gate = {"type": "top", "k": fields["top_k"], "capacity_factor": 0}
        self.layer = tutel_moe.moe_layer(gate_type=gate, model_dim=fields["model_dim"], experts=experts,
                                         normalize_gate=fields["gate"] != "switch")
        names = {"w1": "W_fc1", "w3": "W_fc2", "w2": "W_fc3"}
        with torch.no_grad():
            self.layer.gates[0].wg.weight.copy_(weights["gate"])
            if fields["ffn"] == "gpt":
                self.layer.experts.batched_fc1_w.copy_(weights["w1"].mT)
                self.layer.experts.batched_fc2_w.copy_(weights["w2"])
            else:
                for ours, theirs in names.items():
                    parameter = getattr(self.layer.experts, theirs)
                    parameter.copy_(weights[ours].reshape(parameter.shape))
        self.leaves = [*self.layer.parameters(),
                       *(w for name, w in weights.items() if name not in ("gate", *names))]

    def with_moe(self, out: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return out + self.layer(rows)


def pass_seconds(forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor,
                 leaves: List[torch.Tensor]) -> Tuple[float, float]:
    """Returns the seconds of a forward and of its backward."""
    for each in [x, *leaves]:
        each.grad = None
    begin = time.perf_counter()
    y = forward(x)
    end = time.perf_counter()
    dy = torch.ones_like(y)
    middle = time.perf_counter()
    y.backward(dy)
    return end - begin, time.perf_counter() - middle


def _gradients(forward: Forward, x: torch.Tensor, leaves: Leaves) -> List[torch.Tensor]:
    """Returns the output, the gradient of x, and those of the leaves."""
    own = x.detach().requires_grad_()
    y = forward(own)
    dy = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)
    return [y.detach(), *torch.autograd.grad(y, [own, *leaves], dy)]


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-3))


def _checked(fields: Dict[str, Any]) -> Dict[str, Any]:
    for name in fields:
        if name not in _DEFAULTS:
            raise ValueError(f"found the field {name!r}, expected some of {', '.join(_DEFAULTS)}")
    for name, values in _CHOICES.items():
        if fields.get(name, values[0]) not in values:
            raise ValueError(f"{name}: found {fields[name]!r}, expected "
                             f"{' or '.join(str(value) for value in values)}, which plain PyTorch has here")
    return {**_DEFAULTS, **fields}


def _peer(name: str, fields: Dict[str, Any], weights: Weights) -> Tuple[Optional[Forward], Leaves, str]:
    """Returns a peer's function for the layer and its leaves, or None and the reason why it is left out."""
    leaves = list(weights.values())
    if name == "eager":
        return PlainLayer(fields, weights), leaves, ""
    if name == "compile":
        if not any(map(shutil.which, ("g++", "clang++", "c++"))):
            return None, [], "found no C++ compiler"
        return torch.compile(PlainLayer(fields, weights).__call__), leaves, ""
    if importlib.util.find_spec("tutel") is None:
        return None, [], "not installed"
    if fields["capacity_factor"] is not None or fields["dtype"] != "float32":
        return None, [], "compared without a capacity and in float32 alone (--capacity-factor none)"
    layer = TutelLayer(fields, weights)
    return layer, layer.leaves, ""


def compare(fields: Dict[str, Any], schedule: str = "tutel", degrees: Any = 1, rounds: int = 15,
            peers: Tuple[str, ...] = PEERS) -> Dict[str, Any]:
    """Compares and times one layer; `fields` are MoELayer's. Returns `worst_error` and `worst_tensor`; `ways`: for
    "moetune" and each peer, lists of seconds `forward_s` and `total_s`, empty if the results disagree; and `left_out`:
    reasons why other peers were not run. Raises ValueError for options that PlainLayer does not implement."""
    given, fields = fields, _checked(fields)
    layer = MoELayer(**given, schedule=schedule, degrees=degrees)
    layer.eval()  # a gate without noise
    own = {name: p for name, p in layer.named_parameters() if name != "gate_noise"}
    weights = {name: p.detach().clone().requires_grad_() for name, p in own.items()}
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(len(layer.tokens), fields["model_dim"], generator=numbers, dtype=layer.w1.dtype)
    names = ["output", "gradient of x", *(f"gradient of {name}" for name in own)]
    found = [each.clone() for each in _gradients(layer, x, list(own.values()))]
    ways: Dict[str, Tuple[Forward, Leaves]] = {"moetune": (layer, list(layer.parameters()))}
    result: Dict[str, Any] = {"layer": str(layer), "left_out": {}, "worst_error": 0.0, "worst_tensor": names[0]}
    for peer in peers:
        forward, leaves, why = _peer(peer, fields, weights)
        if forward is None:
            result["left_out"][peer] = why
            continue
        ways[peer] = forward, leaves
        for name, ours, theirs in zip(names, found, _gradients(forward, x, leaves if peer != "tutel" else [])):
            error = _difference(ours, theirs)
            if not error <= result["worst_error"]:
                result.update(worst_error=error, worst_tensor=f"{name} of {peer}")
    result["ways"] = {way: {"forward_s": [], "total_s": []} for way in ways}
    if not result["worst_error"] <= TOLERANCE[fields["dtype"]]:
        return result
    x.requires_grad_()
    for turn in range(rounds + 1):
        for way, (forward, leaves) in ways.items():
            first, second = pass_seconds(forward, x, leaves)
            if turn > 0:
                result["ways"][way]["forward_s"].append(first)
                result["ways"][way]["total_s"].append(first + second)
    return result


def _records(fields: Dict[str, Any], result: Dict[str, Any], argv: List[str]) -> List[Dict[str, Any]]:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    settings = {key: "none" if value is None else value for key, value in fields.items()}
    lines: List[Dict[str, Any]] = [{
        "kind": "run", "schema": 2, "measurement": 1, "started": now, "argv": argv, "config_digest": "none", "git": {},
        "compiler": f"Python {platform.python_version()}", "libraries": {"torch": torch.__version__},
        "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}, "environment": {}}]
    medians = {way: statistics.median(times["total_s"]) if times["total_s"] else None
               for way, times in result["ways"].items()}
    for way, times in result["ways"].items():
        summary = {"worst_error": result["worst_error"]}
        if medians[way] is not None:
            summary["total_s"], summary["forward_s"] = medians[way], statistics.median(times["forward_s"])
            summary["over_moetune"] = medians[way] / medians["moetune"]
        lines.append({
            "kind": "case", "key": f"torch/{way}", "status": "wrong" if medians[way] is None else "ok",
            **({"reason": f"{result['worst_tensor']} is off by {result['worst_error']:.2g}"}
               if medians[way] is None else {}),
            "parameters": {**settings, "way": way, "threads": torch.get_num_threads()}, "backend": "local",
            "emulated": False, "dilation": 1.0, "summary": summary, "prediction": {},
            "samples": {name: [[s] for s in values] for name, values in times.items() if values}})
    return [*lines, {"kind": "end", "ended": now}]


def _value(word: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if word in words:
        return words[word]
    for number in int, float:
        try:
            return number(word)
        except ValueError:
            pass
    return word


def _fields(words: List[str]) -> Dict[str, Any]:
    """Returns layer fields from flags: --model-dim 64 is model_dim=64."""
    fields: Dict[str, Any] = {}
    for name, value in zip(words[::2], words[1::2]):
        if not name.startswith("--"):
            raise ValueError(f"found {name!r}, expected a flag")
        key = name[2:].replace("-", "_")
        fields[key] = value if key == "hook" else _value(value)
    if len(words) % 2:
        raise ValueError(f"found {words[-1]!r} without a value, expected one")
    return fields


def _numbers(text: str) -> Any:
    parts = [int(part) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def main(argv: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python3 -m moetune.torch_bench", description=__doc__.split("\n")[0],
                                     epilog="All other flags are fields of the layer, as layer files name them.")
    parser.add_argument("--schedule", default="tutel", help="MoELayer's (tutel)")
    parser.add_argument("--degrees", type=_numbers, default=1,
                        help="its number of chunks, or two: forward,backward (1)")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds, in which all take turns (15)")
    parser.add_argument("--peers", default=",".join(PEERS), help="what it is compared with (eager,compile,tutel)")
    parser.add_argument("--threads", type=int, help="threads that all compute with (torch's)")
    parser.add_argument("--out", help="a file of records to append to")
    own, others = parser.parse_known_args(words)
    try:
        if own.threads:
            torch.set_num_threads(own.threads)
        peers = tuple(own.peers.split(","))
        for peer in peers:
            if peer not in PEERS:
                raise ValueError(f"--peers: found {peer!r}, expected some of {', '.join(PEERS)}")
        fields = _fields(others)
        result = compare(fields, own.schedule, own.degrees, own.rounds, peers)
    except (ValueError, TypeError) as error:
        print(f"moetune.torch_bench: {error}", file=sys.stderr)
        return BAD_INPUT
    if own.out:
        os.makedirs(os.path.dirname(own.out) or ".", exist_ok=True)
        with open(own.out, "a", encoding="utf-8") as file:
            for line in _records(fields, result, ["python3", "-m", "moetune.torch_bench", *words]):
                file.write(json.dumps(line) + "\n")
    print(f"{result['layer']}, {torch.get_num_threads()} threads; worst difference {result['worst_error']:.1e} "
          f"({result['worst_tensor']})")
    if not result["ways"]["moetune"]["total_s"]:
        print("moetune.torch_bench: results disagree, nothing was timed", file=sys.stderr)
        return WRONG
    ours = result["ways"]["moetune"]["total_s"]
    for way, times in result["ways"].items():
        ratios = sorted(theirs / mine for mine, theirs in zip(ours, times["total_s"]))
        print(f"{way:8}  forward {1e3 * statistics.median(times['forward_s']):9.2f} ms  "
              f"forward and backward {1e3 * statistics.median(times['total_s']):9.2f} ms  "
              f"{statistics.median(ratios):.3f} times moetune's (rounds {ratios[0]:.2f} to {ratios[-1]:.2f})")
    for peer, why in result["left_out"].items():
        print(f"{peer:8}  left out: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
