"""`MoELayer`: one rank's transformer layer with MoE as a `torch.nn.Module`, run by a schedule of moetune.

Needs a package that was built with the torch that is installed (docs/torch.md). It computes on the CPU. Ranks are
those of the default process group of `torch.distributed`; without one there is one rank.
"""
from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import math
import os
import threading
import uuid
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

import torch
from torch import distributed, nn

from moetune._program import output_of
from moetune._transformers import MoEBlock, layer_fields, moe_blocks, refuse_router_logits

__all__ = ["MoELayer", "data_parallel", "replace_moe"]

_PREFIX = "libmoetune_torch-"
_TIMEOUT = 600.0  # seconds


def _library(version: str) -> Path:
    """Returns the library that was built for a version of torch."""
    named = os.environ.get("MOETUNE_TORCH_LIBRARY")
    built = [Path(named)] if named else sorted((Path(__file__).parent / "lib").glob(f"{_PREFIX}*.so"))
    for path in built:
        if path.stem == _PREFIX + version:
            return path
    versions = ", ".join(path.stem[len(_PREFIX):] for path in built)
    raise ImportError(f"moetune.torch: found torch {version}, expected {versions}, which it was built for" if versions
                      else "moetune.torch: found a package without the layer, expected one built with MOETUNE_TORCH=ON")


def _load(path: Path) -> None:
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"moetune.torch: {path}: {error.__cause__ or error}") from None


_load(_library(torch.__version__.split("+")[0]))


class _Ranks:
    """This process's rank in a process group. `group` None: the process is the only rank."""

    def __init__(self, group: Any, ranks_per_node: int, timeout: float):
        self.store = None  # the reference keeps the store's server alive in the process that serves it
        rank, ranks, address, run = 0, 1, "", ""
        if group is not None and distributed.get_world_size() > 1:
            rank, ranks = distributed.get_rank(), distributed.get_world_size()
            self.store = distributed.distributed_c10d._get_default_store()
            served = self.store
            while isinstance(served, distributed.PrefixStore):
                served = served.underlying_store
            if not isinstance(served, distributed.TCPStore):
                raise RuntimeError(f"MoELayer: found a process group whose store is a {type(served).__name__}, "
                                   "expected a TCPStore (init_method env:// or tcp://)")
            address = f"{served.host}:{served.port}"
            known = sum(of is group for of, _ in _known_ranks)  # the same number on all ranks
            key = f"moetune/{known}"
            if rank == 0:
                self.store.set(key, f"moetune/{uuid.uuid4().hex}/")
            run = self.store.get(key).decode()
        self.made = torch.classes.moetune.Ranks(rank, ranks, address, run, ranks_per_node, timeout)


_known_ranks: Dict[Tuple[Any, int], _Ranks] = {}


def _ranks(ranks_per_node: int, timeout: float) -> Any:
    """Returns the ranks of the default process group, which all layers share."""
    group = distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None
    if group is None and int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise RuntimeError(f"MoELayer: found WORLD_SIZE={os.environ['WORLD_SIZE']} but no process group, expected "
                           "torch.distributed.init_process_group() before the first layer")
    key = (group, ranks_per_node)
    if key not in _known_ranks:
        _known_ranks[key] = _Ranks(group, ranks_per_node, timeout)
    return _known_ranks[key].made


def _refuse(ranks: Any, error: Exception) -> None:
    """Ends the other ranks with the error's first line, because they would wait for this one. Does nothing if all ranks
    report the error."""
    ranks.refuse((str(error) or type(error).__name__).splitlines()[0])


@atexit.register
def _leave() -> None:
    while _known_ranks:
        ranks = _known_ranks.popitem()[1]  # its reference keeps the store alive until all ranks have left
        ranks.made.close()


class _Layer:
    """The C++ layer for some options. The constructor blocks until all ranks have made theirs. A copy is another layer
    with the same options. `parts`: the parts that Python computes, names of _PARTS; `own`: their parameters by name."""

    def __init__(self, options: str, ranks_per_node: int, timeout: float, parts: Tuple[str, ...],
                 own: Dict[str, torch.Tensor]):
        self.arguments = options, ranks_per_node, timeout, parts, {n: p.detach().to("meta") for n, p in own.items()}
        self.number = next(_numbers) if parts else 0
        self.modules: Dict[str, Any] = {}  # modules of the parts, from the first forward on
        self.chosen: Any = None  # hidden states, parameters and weights of the last forward, with their graph
        self.rows: Dict[Any, Any] = {}  # inputs and outputs of experts, by expert, first row and number of rows
        self.inside: Set[int] = set()  # threads in which a part runs
        self.ranks = _ranks(ranks_per_node, timeout)
        self.made = torch.classes.moetune.Layer(self.ranks, options, self.number, list(parts),
                                                list(own.values()), [_called_name(name) for name in own])
        self.forward = self.made.forward  # cached, because the look-up takes longer than the call
        _layers[self.number] = self

    @contextlib.contextmanager
    def runs_part(self) -> Iterator[None]:
        """Marks that a part runs in this thread, which therefore must not call the layer."""
        thread = threading.get_ident()
        self.inside.add(thread)
        try:
            yield
        finally:
            self.inside.discard(thread)

    def __reduce__(self) -> Any:
        return _made_again, self.arguments

    def __deepcopy__(self, memo: Any) -> "_Layer":
        return _made_again(*self.arguments)


def _made_again(options: str, ranks_per_node: int, timeout: float, parts: Tuple[str, ...],
                own: Dict[str, torch.Tensor]) -> _Layer:
    """Makes the layer for a copy of the module, whose parameters supply the values."""
    return _Layer(options, ranks_per_node, timeout, parts,
                  {name: torch.zeros_like(p, device="cpu") for name, p in own.items()})


def _called_name(name: str) -> str:
    return name.replace(".", "/")  # torch allows no dots


# Parts of a layer that Python can compute, of which the first two can have parameters; and the points of a hook.
_PARTS = ("gate", "experts", "order", "dispatcher", "hook")
_POINTS = ("before_moe_start", "before_dispatch", "after_dispatch", "before_combine", "after_combine",
           "before_moe_end")
_numbers = itertools.count(1)
_calls = threading.RLock()  # guards gates and experts, which several layers may share
_layers: "weakref.WeakValueDictionary[int, _Layer]" = weakref.WeakValueDictionary()
_operators = torch.library.Library("moetune", "IMPL")


def _choices(found: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns a gate's experts and weights; the layer checks that they have the shape (tokens, top_k)."""
    several = isinstance(found, (tuple, list))
    kinds = [type(each).__name__ for each in found] if several else [type(found).__name__]
    if not several or len(found) != 2 or not all(isinstance(each, torch.Tensor) for each in found):
        raise TypeError(f"gate: found {', '.join(kinds) or 'nothing'}, expected two tensors: the experts' numbers and "
                        "their weights")
    experts, weights = found
    if (experts.is_floating_point() or experts.is_complex() or experts.dtype == torch.bool
            or not weights.is_floating_point()):
        raise TypeError(f"gate: found experts of {experts.dtype} and weights of {weights.dtype}, expected integers and "
                        "floating-point numbers, both (tokens, top_k)")
    for each in found:
        if each.device.type != "cpu":
            raise ValueError(f"gate: found a tensor on {each.device}, expected the CPU's")
    return experts, weights


def _called(layer: _Layer, module: nn.Module, rows: torch.Tensor, values: List[torch.Tensor],
            keeps: bool) -> Tuple[Any, Any]:
    """Returns a module's inputs (rows and parameters) and its output; `keeps`: with the graph for a backward."""
    with torch.inference_mode(False), torch.set_grad_enabled(keeps), _calls:
        rows = rows.requires_grad_()
        # Stand-ins for the parameters: the layer gives their gradients to autograd, so hooks see each gradient once.
        parameters = {name: value.detach().requires_grad_(p.requires_grad)
                      for (name, p), value in zip(module.named_parameters(), values)}
        with layer.runs_part():
            return [rows, *parameters.values()], torch.func.functional_call(module, parameters, (rows,))


def _gradients(inputs: List[torch.Tensor], output: torch.Tensor, d_output: torch.Tensor,
               keeps: bool) -> List[torch.Tensor]:
    """Returns the gradients of `inputs`; zeros for an input without a gradient."""
    found: List[Optional[torch.Tensor]] = [None] * len(inputs)
    wanted = [i for i, each in enumerate(inputs) if each.requires_grad]
    if output.requires_grad and wanted:
        for i, gradient in zip(wanted, torch.autograd.grad(output, [inputs[i] for i in wanted],
                                                           d_output.to(output.dtype), keeps, allow_unused=True)):
            found[i] = gradient
    return [torch.zeros_like(each) if gradient is None else gradient for each, gradient in zip(inputs, found)]


def _gate_forward(number: int, hidden: torch.Tensor, values: List[torch.Tensor],
                  keeps: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    layer = _layers[number]
    inputs, found = _called(layer, layer.modules["gate"], hidden, values, keeps)
    choices, weights = _choices(found)
    layer.chosen = (inputs, weights) if keeps else None
    return choices.detach(), weights.detach()


def _gate_backward(number: int, d_weights: torch.Tensor) -> List[torch.Tensor]:
    layer = _layers[number]
    (inputs, weights), layer.chosen = layer.chosen, None
    return _gradients(inputs, weights, d_weights, False)


def _experts_begin(number: int) -> None:
    if number in _layers:
        _layers[number].rows.clear()


def _expert_forward(number: int, expert: int, first: int, rows: torch.Tensor, values: List[torch.Tensor],
                    keeps: bool) -> torch.Tensor:
    layer = _layers[number]
    inputs, output = _called(layer, list(layer.modules["experts"].values())[expert], rows, values, keeps)
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"expert: found a {type(output).__name__}, expected a tensor in the shape of the rows")
    if keeps:
        layer.rows[expert, first, len(rows)] = inputs, output
    return output.detach()


def _expert_backward(number: int, expert: int, first: int, rows: torch.Tensor, d_output: torch.Tensor,
                     values: List[torch.Tensor], of_inputs: bool, of_weights: bool) -> List[torch.Tensor]:
    layer = _layers[number]
    key = expert, first, len(rows)
    if key not in layer.rows:  # drops graphs of an earlier forward in other chunks, which overlap these rows
        for other, begin, count in list(layer.rows):
            if other == expert and begin < first + len(rows) and first < begin + count:
                del layer.rows[other, begin, count]
        _expert_forward(number, expert, first, rows, values, True)
    inputs, output = layer.rows[key] if not of_weights else layer.rows.pop(key)
    own = inputs if of_inputs and of_weights else inputs[:1] if of_inputs else inputs[1:]
    return _gradients(own, output, d_output, not of_weights)


def _ordered(number: int, way: str, inputs: List[torch.Tensor], arguments: List[Any],
             d_output: Optional[torch.Tensor]) -> List[torch.Tensor]:
    """Returns an order's result in one direction, or the gradients of its inputs."""
    layer = _layers[number]
    with torch.inference_mode(False), torch.set_grad_enabled(d_output is not None), layer.runs_part():
        inputs = [each.requires_grad_(d_output is not None) for each in inputs]
        found = getattr(layer.modules["order"], way)(inputs[0], *arguments, *inputs[1:])
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"{way}: found a {type(found).__name__}, expected a tensor (rows, model_dim)")
    if d_output is None:
        return [found]
    if found.shape != d_output.shape:
        raise ValueError(f"{way}: found shape {tuple(found.shape)}, expected {tuple(d_output.shape)}")
    return _gradients(inputs, found, d_output, False)


def _order(number: int, tokens: torch.Tensor, numbers: torch.Tensor, rows: int,
           d_rows: Optional[torch.Tensor]) -> torch.Tensor:
    return _ordered(number, "order", [tokens], [numbers, rows], d_rows)[0]


def _i_order(number: int, rows: torch.Tensor, numbers: torch.Tensor, weights: torch.Tensor,
             d_output: Optional[torch.Tensor]) -> List[torch.Tensor]:
    return _ordered(number, "i_order", [rows, weights], [numbers], d_output)


def _exchange(number: int, send: List[torch.Tensor], receive: List[torch.Tensor], ranks: List[int]) -> None:
    layer = _layers[number]
    with torch.no_grad(), layer.runs_part():
        layer.modules["dispatcher"](send, receive, ranks)


def _hook(number: int, point: str, phase: str, rows: torch.Tensor) -> None:
    layer = _layers[number]
    call = layer.modules["hook"].get(point)
    if call is None:
        return
    with torch.no_grad(), layer.runs_part():
        found = call(phase, rows)
    if found is None:
        return
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"{point}: found a {type(found).__name__}, expected a tensor or None")
    if found.shape != rows.shape or found.dtype != rows.dtype:
        raise ValueError(f"{point}: found a tensor of {found.dtype} {tuple(found.shape)}, expected {rows.dtype} "
                         f"{tuple(rows.shape)}")
    rows.copy_(found.detach())


def _refusing(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operator so that its exceptions end the other ranks with their text, which C++ does not see."""
    def called(number: int, *arguments: Any) -> Any:
        try:
            return operator(number, *arguments)
        except Exception as error:
            if number in _layers:
                _refuse(_layers[number].ranks, error)
            raise
    return called


for _operator in (_gate_forward, _gate_backward, _experts_begin, _expert_forward, _expert_backward, _order, _i_order,
                  _exchange, _hook):
    _operators.impl(_operator.__name__[1:], _refusing(_operator), "CompositeExplicitAutograd")


def _plan_text(path: str) -> str:
    """Returns the text of a plan from a plan file or from records of `tune`."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict) and "format" in document:
        return text
    return output_of("export", "plan", path, "--quiet")


def _field(key: str, value: Any) -> Any:
    """Returns an option's value as JSON; numbers may be NumPy's."""
    value = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if value is not None and not isinstance(value, (bool, int, float, str, list, tuple, dict)):
        raise TypeError(f"MoELayer: {key}: found a {type(value).__name__}, expected a number or a word")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"MoELayer: {key}: found {value}, expected a finite number")
    return value


def _called_parts(parts: Dict[str, Any]) -> Dict[str, Any]:
    """Returns those of order, dispatcher and hook that are Python objects instead of names."""
    called = {name: part for name, part in parts.items() if part is not None and not isinstance(part, str)}
    for name, part in called.items():
        if name == "order" and not all(callable(getattr(part, way, None)) for way in ("order", "i_order")):
            raise TypeError(f"MoELayer: order: found a {type(part).__name__}, expected an object with the functions "
                            "order and i_order")
        if name == "dispatcher" and not callable(part):
            raise TypeError(f"MoELayer: dispatcher: found a {type(part).__name__}, expected a function")
        if name == "hook":
            if not isinstance(part, Mapping) or not all(callable(call) for call in part.values()):
                raise TypeError(f"MoELayer: hook: found a {type(part).__name__}, expected functions by the names of "
                                "points")
            for point in part:
                if point not in _POINTS:
                    raise ValueError(f"MoELayer: hook: found the point {point!r}, expected some of "
                                     f"{', '.join(_POINTS)}")
    return called


def _made_expert(make: Callable[[], nn.Module], seed: int, number: int) -> nn.Module:
    """Makes one expert, with the same weights on every rank."""
    if isinstance(make, nn.Module) or not callable(make):
        raise TypeError(f"MoELayer: expert: found a {type(make).__name__}, expected what makes one when it is called")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(((seed << 20) + number) % (1 << 64))
        made = make()
    if not isinstance(made, nn.Module):
        raise TypeError(f"MoELayer: expert: found one that makes a {type(made).__name__}, expected a torch.nn.Module")
    return made


class MoELayer(nn.Module):
    """This rank's part of one transformer layer with MoE: norm, attention, norm, gate and experts.

    `plan` is a plan file (`moetune export plan`), the records that `moetune tune` kept, or "auto": the first training
    steps measure the layer's tasks, then all schedules are tuned by these times, and the fastest is kept. Without a
    file, the fields are the layer's, by the names of layer files (`batch`, `seq`, `model_dim`, `hidden`, `experts`,
    `top_k`, `dtype`, `gate`, `ep`, `mp`, ...). Without a plan, it runs by `schedule` in `degrees` chunks, one number or
    two (forward, backward). All ranks make the same layers in the same order.

    `expert` makes one expert: a module that is called with rows (rows, model_dim) and returns as many. It is called
    without arguments once for each expert that the rank holds, with torch's random numbers seeded by `seed` and the
    expert's number. If several ranks hold an expert, they start with the parameters of the first of these ranks. ESP
    must be 1.

    `gate` is the name of a gate, or your own module. Called with hidden states (tokens, model_dim), it returns
    the experts' numbers and their weights, both (tokens, top_k); autograd does its backward. Its parameters start as
    rank 0's and stay the same on all ranks.

    `order`, `dispatcher` and `hook` are names, too, or your own parts (docs/torch_parts.md): for `order` an object with
    the functions `order` and `i_order`, for `dispatcher` a function that exchanges rows, for `hook` a dict from the
    names of a hook's points to functions.

    `losses`: "sum" or "mean": the loss of the step is the sum, or as with DistributedDataParallel the mean, of the
    losses of ranks with different tokens. `seed` decides the initial weights, which don't depend on the number of
    ranks. `ranks_per_node`: number of ranks that count as one node; 0: all ranks of a machine. `timeout`: seconds
    without an answer after which a rank counts as failed.

    `attention=False`: a layer without attention and its norm. With `residual=False` and `norm="none"` it is gate and
    experts alone.

    Raises ValueError, or TypeError for a wrong type of elements, with a line that says what was found and expected;
    RuntimeError if another rank failed.
    """

    def __init__(self, *, plan: Union[str, os.PathLike, None] = None, schedule: Optional[str] = None,
                 degrees: Union[int, Tuple[int, int], None] = None, losses: str = "sum", seed: int = 1,
                 ranks_per_node: int = 0, timeout: float = _TIMEOUT, gate: Union[str, nn.Module, None] = None,
                 expert: Optional[Callable[[], nn.Module]] = None, order: Any = None, dispatcher: Any = None,
                 hook: Any = None, **fields: Any):
        super().__init__()
        if not isinstance(ranks_per_node, int) or not 0 <= ranks_per_node < 1 << 31:
            raise ValueError(f"MoELayer: ranks_per_node: found {ranks_per_node!r}, expected a whole number >= 0")
        has_timeout = isinstance(timeout, (int, float)) and 0 < timeout < math.inf
        ranks = _ranks(ranks_per_node, timeout if has_timeout else _TIMEOUT)
        try:
            if not has_timeout:
                raise ValueError(f"MoELayer: timeout: found {timeout!r}, expected a number of seconds above 0")
            self._make(plan, schedule, degrees, losses, seed, ranks_per_node, timeout, gate, expert,
                       {"order": order, "dispatcher": dispatcher, "hook": hook}, fields)
        except Exception as error:
            _refuse(ranks, error)
            raise

    def _make(self, plan: Any, schedule: Any, degrees: Any, losses: Any, seed: Any, ranks_per_node: int,
              timeout: float, gate: Any, expert: Any, others: Dict[str, Any], fields: Dict[str, Any]) -> None:
        called = _called_parts(others)
        options = {**fields, "losses": losses, "seed": seed}
        options.update({name: part for name, part in others.items() if part is not None and name not in called})
        if isinstance(options.get("dtype"), torch.dtype):
            options["dtype"] = str(options["dtype"])[len("torch."):]
        if plan == "auto":
            if schedule is not None or degrees is not None:
                raise ValueError("MoELayer: found schedule or degrees beside plan='auto', expected neither: it decides")
            options["auto"] = True
        elif plan is not None:
            options["plan"] = os.fspath(plan)
            options["plan_text"] = _plan_text(options["plan"])
        if schedule is not None:
            options["schedule"] = schedule
        if degrees is not None:
            pair = degrees if isinstance(degrees, (tuple, list)) else (degrees, degrees)
            if len(pair) != 2:
                raise ValueError(f"MoELayer: degrees: found {len(pair)} numbers, expected one or two")
            options["degree_forward"], options["degree_backward"] = pair
        router = gate if isinstance(gate, nn.Module) else None
        if router is None and gate is not None:
            options["gate"] = gate
        elif router is not None and plan is None:
            options["gate"] = "switch"  # this gate is planned as switch
        text = json.dumps({key: _field(key, value) for key, value in options.items()})
        parts: Dict[str, nn.Module] = {} if router is None else {"gate": router}
        if expert is not None:
            seed = _field("seed", seed)
            if not isinstance(seed, int):
                raise ValueError(f"MoELayer: seed: found {seed!r}, expected a whole number >= 0")
            first, count = _ranks(ranks_per_node, timeout).experts(text)
            made = {str(e): _made_expert(expert, seed, e) for e in range(first, first + count)}
            weights = [weight for part in (*parts.values(), *made.values()) for weight in part.parameters()]
            if len({id(weight) for weight in weights}) < len(weights):
                raise ValueError("MoELayer: expert: found a parameter of two experts, or of one and the gate, expected "
                                 "each to have its own")
            parts["experts"] = nn.ModuleDict(made)
        own = {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
        self._parts = called
        self._layer = _Layer(text, ranks_per_node, timeout, (*parts, *called), own)
        self._called = {_called_name(name): name for name in own}
        self._names: List[str] = self._layer.made.names()
        for part, module in parts.items():
            self.add_module(part, module)
        for name, weight in zip(self._names, self._layer.made.weights()):
            if name in self._called:
                own[self._called[name]].data = weight  # the weight of rank 0
            else:
                self.register_parameter(name, nn.Parameter(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output of this rank's tokens, in the shape of `x`: (..., model_dim), whose rows are `tokens`. All ranks
        call it, and run backward through what it returns."""
        try:
            return self._computed(x)
        except Exception as error:
            _refuse(self._layer.ranks, error)
            raise

    def _computed(self, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"x: found a {type(x).__name__}, expected a tensor")
        own, layer = self._parameters, self._layer
        weights = [own.get(name) for name in self._names]
        if layer.number:
            if threading.get_ident() in layer.inside:
                raise RuntimeError("MoELayer: found a layer that its own part calls, expected one without it")
            called = self._called_parameters()
            weights = [called.get(name, weight) for name, weight in zip(self._names, weights)]
        for i, weight in enumerate(weights):
            if weight is None:  # a parametrization has replaced it
                weights[i] = getattr(self, self._names[i])
                if weights[i] is None:
                    raise TypeError(f"{self._names[i]}: found None, expected a parameter")
        y = layer.forward(x, weights, self.training)
        if layer.number and y.grad_fn is not None:
            y.grad_fn.metadata["moetune"] = layer  # keeps the layer alive until the backward, which needs its parts
        return y

    def _called_parameters(self) -> Dict[str, torch.Tensor]:
        """Returns parameters of parts that Python computes, by the layer's names, and hands the parts to the layer."""
        found: Dict[str, torch.Tensor] = {}
        self._layer.modules.update(self._parts)
        for part in self._layer.arguments[3]:
            if part in self._parts:
                continue
            module = getattr(self, part)
            with _calls:  # modules have stand-ins for their parameters meanwhile
                own = dict(module.named_parameters()) if isinstance(module, nn.Module) else {}
            expected = [name[len(part) + 1:] for name in self._called.values() if name.startswith(part + ".")]
            if list(own) != expected:
                raise ValueError(f"{part}: found parameters {', '.join(own) or 'none'}, expected "
                                 f"{', '.join(expected) or 'none'}: those the layer was made with")
            self._layer.modules[part] = module
            found.update({_called_name(f"{part}.{name}"): p for name, p in own.items()})
        return found

    @property
    def tokens(self) -> range:
        """This rank's tokens among all, sample by sample: the rows of its `x`."""
        first, count, _ = self._layer.made.tokens()
        return range(first, first + count)

    def shards(self) -> Dict[str, List[range]]:
        """Returns each parameter's part of the whole weight, as one range for each axis."""
        return {name: [range(first, first + count) for first, count, _ in self._layer.made.shards(i)]
                for i, name in enumerate(self._names) if name not in self._called}

    def auxiliary_loss(self) -> float:
        """The gate's auxiliary losses of the last forward, times their coefficients. The backward adds their gradients
        already, so do not add them to the training loss."""
        return self._layer.made.auxiliary_loss()

    def runner_seconds(self) -> Tuple[float, float]:
        """Seconds in which the plan's tasks ran in the last forward and in the last backward."""
        forward, backward = self._layer.made.runner_seconds()
        return forward, backward

    def tuning(self) -> Optional[Dict[str, Any]]:
        """Returns the progress of plan="auto"; None if the layer's plan was given. `decided`: whether the plan is
        final; `steps`: training steps so far; `rows`: seconds of the layer's tasks by the number of chunks, the same on
        all ranks; `ranking`: the schedules by their `predicted_s` from these rows, with `measured_s` of those that ran;
        `plan`: the plan's document once it is decided, which MoELayer(plan=FILE) accepts as a file."""
        text = self._layer.made.tuning()
        return json.loads(text) if text else None

    def extra_repr(self) -> str:
        return self._layer.made.line()


def data_parallel(model: nn.Module, **options: Any) -> nn.Module:
    """Returns the model in DistributedDataParallel, which ignores the parameters of MoELayers, because these layers
    average (`losses="mean"`, as DistributedDataParallel does) or sum their own gradients. Buffers of experts are not
    synchronized. `options`: arguments of DistributedDataParallel."""
    own = [f"{prefix}.{name}" if prefix else name for prefix, module in model.named_modules()
           if isinstance(module, MoELayer)
           for name in [*dict(module.named_parameters()),
                        *(buffer for buffer, _ in module.named_buffers() if buffer.startswith("experts."))]]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, own)
    return nn.parallel.DistributedDataParallel(model, **options)


def replace_moe(model: nn.Module, *, batch: Optional[int] = None, seq: Optional[int] = None,
                plan: Union[str, os.PathLike, None] = None, schedule: Optional[str] = None,
                degrees: Union[int, Tuple[int, int], None] = None, losses: str = "mean", **options: Any) -> nn.Module:
    """Replaces, in place, the MoE blocks of a model of Hugging Face transformers 5 (Mixtral, Qwen3-MoE, OLMoE and
    DeepSeek-V3) by MoELayers without attention. Returns the model.

    Routers stay the model's modules, with their parameters; experts become the layers' weights `w1`, `w3`, `w2`, of
    the experts that this rank holds, so make optimizers afterwards. `state_dict` keeps the model's names and shapes,
    of this rank's experts; `load_state_dict` takes such a part, or the whole.

    A forward has at most `batch` x `seq` / MP tokens on each rank, different ones on each; fewer are padded. `plan`,
    the same as MoELayer's, decides `batch`, `seq`, schedule, degrees and groups; with "auto", each layer finds its own
    schedule for the given `batch` and `seq`. `options`: other arguments of MoELayer (`mp`, `ep`, `esp`,
    `ranks_per_node`, ...). MP and ESP are 1 unless the plan or an option sets them. No token is dropped. All ranks
    must begin with the same model.

    `losses="mean"` fits DistributedDataParallel (data_parallel). Raises ValueError for models without such blocks,
    with activations other than SiLU or with router noise, and in a forward that asks for router logits.
    """
    given = {"batch": batch, "seq": seq, "schedule": schedule, "degrees": degrees}
    if plan is not None and plan != "auto":
        found = [name for name, value in given.items() if value is not None]
        if found:
            raise ValueError(f"replace_moe: found {', '.join(found)} beside plan, expected none: the plan decides")
        given = layer_fields(json.loads(_plan_text(os.fspath(plan))))
    elif batch is None or seq is None:
        raise ValueError("replace_moe: found no plan and no batch or seq, expected a plan or both")
    if plan == "auto":
        given["plan"] = "auto"
    given = {"mp": 1, "esp": 1, **given, **options}
    blocks = moe_blocks(model)
    for _, block in blocks:
        experts = block.experts.gate_up_proj
        shape = {"model_dim": experts.shape[2], "hidden": experts.shape[1] // 2, "experts": experts.shape[0],
                 "top_k": block.gate.top_k}
        for name, value in shape.items():
            if given.setdefault(name, value) != value:
                raise ValueError(f"replace_moe: {name}: found {given[name]}, expected {value}, which the model has")
    mp = given["mp"]
    tokens, beside = divmod(given["batch"] * given["seq"], mp)
    if beside:
        raise ValueError(f"replace_moe: found batch {given['batch']} x seq {given['seq']}, expected a multiple of MP "
                         f"{mp}")
    for name, block in blocks:
        parent, _, own = name.rpartition(".")
        replaced = MoEBlock(block, lambda gate, dtype=block.experts.gate_up_proj.dtype: MoELayer(
            **given, gate=gate, ffn="mixtral", capacity_factor=None, attention=False, residual=False, norm="none",
            dtype=dtype, losses=losses), tokens, mp, losses)
        setattr(model.get_submodule(parent), own, replaced.train(block.training))
    model.register_forward_pre_hook(refuse_router_logits, with_kwargs=True)
    return model
