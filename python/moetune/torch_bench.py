"""Times a MoELayer beside the same layer in plain PyTorch, on one rank of the CPU (docs/torch.md):

    python3 -m moetune.torch_bench --batch 4 --seq 512 --model-dim 1024 --hidden 2048 --heads 16 --experts 4

Output and gradients are compared first. Then both take turns, forward and backward, and the ratio is printed and
recorded. Without torch it prints one line and exits with code 77.
"""
from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shutil
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

NO_HARDWARE, WRONG, BAD_INPUT = 77, 3, 2
if __name__ == "__main__" and importlib.util.find_spec("torch") is None:
    print(f"moetune.torch_bench: skipped: {sys.executable} has no torch", file=sys.stderr)
    sys.exit(NO_HARDWARE)

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from moetune.torch import MoELayer  # noqa: E402

Weights = Dict[str, torch.Tensor]
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
_FIELDS = ("batch", "seq", "model_dim", "hidden", "heads", "experts", "top_k", "gate", "ffn", "dtype",
           "capacity_factor")


class PlainLayer:
    """The layer as eager PyTorch computes it: rows of each expert are gathered, multiplied and added up. Gates
    `switch` and `gshard` without noise, experts `gpt` and `mixtral`, no token is dropped."""

    def __init__(self, fields: Dict[str, Any], weights: Weights):
        self.fields, self.weights = fields, weights

    def norm(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        gain = self.weights[name]
        if self.fields["ffn"] == "mixtral":
            return functional.rms_norm(rows, rows.shape[-1:], gain, 1e-5)
        return functional.layer_norm(rows, rows.shape[-1:], gain, None, 1e-5)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        w, seq = self.weights, self.fields["seq"]
        width = w["wq"].shape[1] // self.fields["heads"]
        q, k, v = (part.view(-1, seq, part.shape[1] // width, width).transpose(1, 2)
                   for part in (x @ w[name] for name in ("wq", "wk", "wv")))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(x.shape[0], -1) @ w["wo"]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weights
        hidden = x + self.attention(self.norm(x, "norm1"))
        normed = self.norm(hidden, "norm2")
        logits = normed @ w["gate"].T
        chosen = logits.topk(self.fields["top_k"]).indices
        if self.fields["gate"] == "switch":
            weights = logits.softmax(-1).gather(1, chosen)
        else:
            weights = logits.gather(1, chosen).softmax(-1)
        out = hidden
        for expert in range(self.fields["experts"]):
            token, place = (chosen == expert).nonzero(as_tuple=True)
            rows = normed[token]
            inner = rows @ w["w1"][expert]
            inner = functional.gelu(inner) if "w3" not in w else functional.silu(inner) * (rows @ w["w3"][expert])
            out = out.index_add(0, token, (inner @ w["w2"][expert]) * weights[token, place, None])
        return out


def pass_seconds(forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor,
                 leaves: List[torch.Tensor]) -> Tuple[float, float]:
    """Seconds of a forward and of its backward."""
    for each in [x, *leaves]:
        each.grad = None
    begin = time.perf_counter()
    y = forward(x)
    middle = time.perf_counter()
    y.backward(torch.ones_like(y))
    return middle - begin, time.perf_counter() - middle


def _worst_error(layer: MoELayer, plain: PlainLayer, x: torch.Tensor) -> Tuple[float, str]:
    """The largest difference of output and gradients, relative to the largest value of each, and where it is."""
    grads, outputs = [], []
    for forward, leaves in (layer, dict(layer.named_parameters())), (plain, plain.weights):
        own = x.detach().requires_grad_()
        y = forward(own)
        names = [name for name in leaves if name != "gate_noise"]
        dy = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)
        found = torch.autograd.grad(y, [own, *(leaves[name] for name in names)], dy)
        outputs.append(y.detach())
        grads.append(dict(zip(["x", *names], found)))
    pairs = {"output": outputs, **{f"gradient of {name}": [each[name] for each in grads] for name in grads[0]}}
    errors = {name: float((a - b).abs().max() / b.abs().max().clamp_min(1e-3)) for name, (a, b) in pairs.items()}
    worst = max(errors, key=lambda name: errors[name])
    return errors[worst], worst


def compare(fields: Dict[str, Any], schedule: str = "tutel", degrees: int = 1, rounds: int = 15,
            compiled: bool = False) -> Dict[str, Any]:
    """Compares and times one layer; `fields` are MoELayer's. Returns `worst_error`, `worst_tensor` and, by way
    ("moetune", "eager" and with `compiled` "torch.compile"), lists of seconds `forward_s` and `total_s`, empty if the
    results disagree. Raises ValueError for a layer that plain PyTorch does not have here."""
    fields = {"gate": "switch", "ffn": "gpt", "top_k": 2, "heads": 16, "dtype": "float32", "capacity_factor": None,
              **fields}
    for name in fields:
        if name not in _FIELDS:
            raise ValueError(f"found the field {name!r}, expected some of {', '.join(_FIELDS)}")
    known = {"gate": ("switch", "gshard"), "ffn": ("gpt", "mixtral"), "dtype": tuple(TOLERANCE),
             "capacity_factor": (None,)}
    for name, values in known.items():
        if fields[name] not in values:
            raise ValueError(f"{name}: found {fields[name]!r}, expected "
                             f"{' or '.join(str(value) for value in values)}")
    layer = MoELayer(**fields, schedule=schedule, degrees=degrees)
    layer.eval()  # a gate without noise
    weights = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    plain = PlainLayer(fields, weights)
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(len(layer.tokens), fields["model_dim"], generator=numbers, dtype=layer.w1.dtype)
    error, tensor = _worst_error(layer, plain, x)
    ways: Dict[str, Any] = {"moetune": (layer, list(layer.parameters())), "eager": (plain, list(weights.values()))}
    if compiled:
        ways["torch.compile"] = (torch.compile(plain.__call__), list(weights.values()))
    result: Dict[str, Any] = {"layer": str(layer), "worst_error": error, "worst_tensor": tensor,
                              "ways": {way: {"forward_s": [], "total_s": []} for way in ways}}
    if error > TOLERANCE[fields["dtype"]]:
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


def _fields(words: List[str]) -> Dict[str, Any]:
    """Layer fields from flags: --model-dim 64 is model_dim=64."""
    fields: Dict[str, Any] = {}
    for name, value in zip(words[::2], words[1::2]):
        if not name.startswith("--"):
            raise ValueError(f"found {name!r}, expected a flag")
        number = value.lstrip("-").isdigit()
        fields[name[2:].replace("-", "_")] = int(value) if number else None if value == "none" else value
    if len(words) % 2:
        raise ValueError(f"found {words[-1]!r} without a value, expected one")
    return fields


def main(argv: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python3 -m moetune.torch_bench", description=__doc__.split("\n")[0],
                                     epilog="All other flags are fields of the layer, as layer files name them.")
    parser.add_argument("--schedule", default="tutel", help="MoELayer's (tutel)")
    parser.add_argument("--degrees", type=int, default=1, help="its number of chunks (1)")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds, in which all take turns (15)")
    parser.add_argument("--compile", action="store_true", help="torch.compile takes part; needs a C++ compiler")
    parser.add_argument("--out", help="a file of records to append to")
    own, others = parser.parse_known_args(words)
    if own.compile and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        print("moetune.torch_bench: skipped: torch.compile needs a C++ compiler, found none", file=sys.stderr)
        return NO_HARDWARE
    try:
        fields = _fields(others)
        result = compare(fields, own.schedule, own.degrees, own.rounds, own.compile)
    except (ValueError, TypeError) as error:
        print(f"moetune.torch_bench: {error}", file=sys.stderr)
        return BAD_INPUT
    if own.out:
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
        print(f"{way:13}  forward {1e3 * statistics.median(times['forward_s']):9.2f} ms  "
              f"forward and backward {1e3 * statistics.median(times['total_s']):9.2f} ms  "
              f"{statistics.median(ratios):.3f} times moetune's (rounds {ratios[0]:.2f} to {ratios[-1]:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
