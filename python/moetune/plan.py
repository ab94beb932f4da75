"""Plans in Python: `tune`, `tune_grid`, `simulate`, `memory` and `read_records`.

Each function runs the planning program and returns its JSON document as dataclasses. Keyword arguments are the
program's flags with underscores (`micro_batches=8` is `--micro-batches 8`); `moetune tune --help` lists all of them,
and flags that a signature does not name can be passed as well. Seconds are per iteration, sizes are bytes of one rank,
and degrees are numbers of chunks. A value that the program did not compute is None; keys without a field here are in
`extra`.
"""
from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Type, TypeVar, Union

from moetune import _html, _records
from moetune._program import BAD_INPUT, BadInput, MoetuneError, run

__all__ = ["Answer", "BadInput", "Estimate", "GridAnswer", "GridLayer", "Lane", "Layer", "Memory", "MoetuneError",
           "Plan", "Record", "Records", "Simulation", "Task", "memory", "read_records", "run", "simulate", "tune",
           "tune_grid"]

Flag = Union[str, int, float, bool, Path, Sequence[Union[str, int, float]], None]
Made = TypeVar("Made")


def _made(cls: Type[Made], document: Dict[str, Any], **others: Any) -> Made:
    """Returns an object with the document's keys for which `cls` has fields; other keys are put into `extra`."""
    kind: Any = cls
    names = {each.name for each in dataclasses.fields(kind)} - {"extra"}
    known = {key: value for key, value in document.items() if key in names}
    extra = {key: value for key, value in document.items() if key not in names}
    return kind(**{**known, **others}, extra=extra)


@dataclass
class Layer:
    """The shape of one MoE layer, its parts and its parallel groups, by the names of layer files."""
    batch: int  #: samples of one MP group (B)
    seq: int  #: tokens of a sample (L)
    model_dim: int  #: width of the model (M)
    hidden: int  #: hidden width of an expert (H)
    heads: int  #: attention heads
    experts: int  #: experts of the layer, over all ranks (E)
    top_k: int  #: experts of a token (k)
    shared_hidden: int = 0  #: hidden width of the shared expert; 0: no shared expert
    kv_heads: Optional[int] = None  #: key-value heads
    head_dim: Optional[int] = None  #: width of a head; None: model_dim / heads
    window: Optional[int] = None  #: tokens that attention of a token covers; None: all before it
    q_lora_rank: Optional[int] = None  #: rank of latent attention's queries; None: they are not compressed
    kv_lora_rank: Optional[int] = None  #: rank of latent attention's keys and values; None: attention is not latent
    qk_nope_head_dim: Optional[int] = None  #: width of a latent head's queries and keys without positions
    qk_rope_head_dim: Optional[int] = None  #: width of a latent head's queries and keys with rotary positions
    v_head_dim: Optional[int] = None  #: width of a latent head's values
    parts: Optional[int] = None  #: number of parts that each sample is cut into; None: whole samples
    first_stage_layers: Optional[int] = None  #: layers of the first pipeline stage; None: as many as others
    last_stage_layers: Optional[int] = None  #: layers of the last pipeline stage; None: as many as others
    rope_theta: Optional[float] = None  #: base of rotary positions; None: no rotary positions
    node_limit: Optional[int] = None  #: most nodes with experts of one token; None: no limit
    router_groups: Optional[int] = None  #: groups of experts that node_limit counts; None: a group for each node
    capacity_factor: Optional[float] = None  #: capacity factor f; None: dropless
    capacity_rounding: Optional[str] = None  #: rule that rounds an expert's number of rows
    ffn: Optional[str] = None  #: kind of expert
    dtype: Optional[str] = None  #: element type of activations and weights
    gate: Optional[str] = None
    order: Optional[str] = None
    dispatcher: Optional[str] = None
    hook: Optional[str] = None
    norm: Optional[str] = None
    residual: bool = True
    causal: bool = True
    bias: bool = False
    aux_loss: float = 0.0  #: coefficient of the load-balancing loss
    z_loss: float = 0.0  #: coefficient of the z loss
    nodes: Optional[int] = None  #: number of nodes that are used
    ranks_per_node: Optional[int] = None
    dp: Optional[int] = None  #: data-parallel group size
    cp: Optional[int] = None  #: context-parallel group size
    cp_exchange: Optional[str] = None  #: exchange of keys and values: allgather or ring; None: allgather
    mp: Optional[int] = None  #: model-parallel group size
    ep: Optional[int] = None  #: expert-parallel group size
    esp: Optional[int] = None  #: expert-sharding group size
    edp: Optional[int] = None  #: size of the groups that sum the gradients of experts
    pp: Optional[int] = None  #: pipeline stages
    placement: Optional[str] = None
    zero: int = 0  #: ZeRO stage
    recompute: str = "none"
    offload: str = "none"
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Task:
    """A task of a simulated plan. `layer` is -1 for tasks of no layer, such as the optimizer's step."""
    name: str
    phase: str  #: forward, backward or step
    lane: str
    stage: int  #: pipeline stage
    layer: int
    micro_batch: int
    chunk: int
    start_s: float  #: seconds from the iteration's start
    end_s: float  #: seconds from the iteration's start
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Lane:
    """A queue of tasks on one resource of a pipeline stage."""
    name: str
    stage: int
    busy_s: float  #: seconds of an iteration in which the lane runs tasks
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Plan:
    """A layer or model under one schedule. If `status` is "unsupported", `reason` says why and no number is set."""
    schedule: str
    status: str = "ok"
    reason: Optional[str] = None
    variant: Optional[str] = None  #: variant that a choosing schedule selected; None: it has no variants
    degree_forward: Optional[int] = None  #: chunks of the forward (r_f)
    degree_backward: Optional[int] = None  #: chunks of the backward (r_b); None: layers differ
    degree_backward_least: Optional[int] = None  #: smallest r_b of a layer
    degree_backward_most: Optional[int] = None  #: largest r_b of a layer
    forward_s: Optional[float] = None  #: seconds of the forward
    backward_s: Optional[float] = None  #: seconds from the forward's end to the backward's end
    total_s: Optional[float] = None  #: seconds of an iteration; for one layer, of forward and backward
    bound_s: Optional[float] = None  #: lower bound on the seconds, over all schedules and numbers of chunks
    memory_bytes: Optional[float] = None  #: bytes on the rank that needs most
    fits: Optional[bool] = None  #: whether memory_bytes fit into a rank; None: its memory is unknown
    lanes: List[Lane] = field(default_factory=list, repr=False)  #: from `simulate`
    tasks: List[Task] = field(default_factory=list, repr=False)  #: from `simulate`, in issue order
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


def _plan(document: Dict[str, Any]) -> Plan:
    plan = _made(Plan, document)
    plan.lanes = [_made(Lane, lane) for lane in document.get("lanes", [])]
    plan.tasks = [_made(Task, task) for task in document.get("tasks", [])]
    if plan.total_s is None and plan.forward_s is not None and plan.backward_s is not None:
        plan.total_s = plan.forward_s + plan.backward_s
    if plan.degree_backward is None:
        if plan.degree_backward_least == plan.degree_backward_most:
            plan.degree_backward = plan.degree_backward_least
    else:
        plan.degree_backward_least = plan.degree_backward_most = plan.degree_backward
    return plan


def _plans_table(plans: Sequence[Plan]) -> str:
    rows: List[List[Any]] = []
    for plan in sorted(plans, key=lambda each: (each.total_s is None, each.total_s)):
        if plan.total_s is None:
            rows.append([plan.schedule, plan.reason or plan.status] + [""] * 4)
            continue
        least, most = plan.degree_backward_least, plan.degree_backward_most
        backward = "" if least is None else str(least) if least == most else f"{least}-{most}"
        rows.append([plan.schedule, f"{1e3 * plan.total_s:.3f}", plan.degree_forward, backward,
                     "" if not plan.bound_s else f"{100 * plan.bound_s / plan.total_s:.1f} %",
                     "" if not plan.memory_bytes else f"{plan.memory_bytes / 2**30:.2f}"])
    return _html.table(["schedule", "iteration ms", "r_f", "r_b", "of the bound", "rank GiB"], rows)


@dataclass
class Simulation:
    """The result of `simulate`: plans of a layer or a model under one or several schedules."""
    cluster: str
    layer: Layer
    schedules: List[Plan]  #: plans in the program's order
    model: str = ""
    layers: int = 1
    micro_batches: int = 1
    notes: List[str] = field(default_factory=list)  #: prices that were derived or extrapolated
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, schedule: str) -> Plan:
        """Returns the plan under a schedule."""
        for plan in self.schedules:
            if plan.schedule == schedule:
                return plan
        raise KeyError(schedule)

    def _repr_html_(self) -> str:
        planned = [plan for plan in self.schedules if plan.tasks]
        shown = sorted(planned, key=lambda plan: plan.total_s or 0)[:2]
        return (_html.caption(self.model or "layer", self.cluster) + _plans_table(self.schedules) +
                _html.timelines([(plan.schedule, plan.tasks) for plan in shown]))


@dataclass
class Answer:
    """The result of `tune`: the recommended plan of a layer or a model, and the plans of all schedules."""
    cluster: str
    layer: Layer  #: the layer; with shape="auto", with the groups that the search found
    use: Plan  #: the recommended plan
    ranking: List[Plan]  #: all schedules: usable ones, the fastest first, then unsupported ones
    model: str = ""
    layers: int = 1
    micro_batches: int = 1
    pipeline: str = "gpipe"
    current: Optional[Plan] = None  #: the plan of the argument `current`; None: not given
    notes: List[str] = field(default_factory=list)  #: prices that were derived or extrapolated
    doubtful: bool = False  #: whether rows of the profile with a weak fit price the plans
    records: Optional[str] = None  #: file with the records; None: not asked for
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)
    flags: Dict[str, Any] = field(default_factory=dict, repr=False)  #: arguments of the call of `tune`

    def simulate(self) -> Simulation:
        """Simulates the recommended plan and shape, and returns it with lanes and tasks."""
        given = {name: value for name, value in self.flags.items() if name not in _TUNE_ALONE}
        if self.extra.get("defaults"):
            given.update(zero=self.layer.zero, recompute=self.layer.recompute)
        if self.flags.get("shape") == "auto":
            found = self.layer
            given.update(batch=found.batch, dp=found.dp, cp=found.cp, cp_exchange=found.cp_exchange, mp=found.mp,
                         ep=found.ep, esp=found.esp, pp=found.pp, placement=found.placement, zero=found.zero,
                         recompute=found.recompute,
                         micro_batches=self.micro_batches)
            if self.micro_batches > 1:
                given.update(pipeline=self.pipeline)
            if self.extra.get("virtual_stages", 1) > 1:
                given.update(virtual_stages=self.extra["virtual_stages"])
        given.update(schedule=self.use.schedule, degree_forward=self.use.degree_forward)
        if self.use.degree_backward is not None:
            given["degree_backward"] = self.use.degree_backward
        return simulate(**given)

    def _repr_html_(self) -> str:
        text = _html.caption(self.model or "layer", self.cluster) + _plans_table(self.ranking)
        try:
            plan, = self.simulate().schedules
        except (MoetuneError, ValueError) as error:  # the table is still valid without the picture
            return text + _html.note(str(error))
        return text + _html.timelines([(plan.schedule, plan.tasks)])


@dataclass
class GridLayer:
    """One layer of a grid under all schedules."""
    layer: str  #: name of the layer in the grid
    status: str
    schedules: List[Plan] = field(default_factory=list, repr=False)
    reason: Optional[str] = None
    memory_bytes: Optional[float] = None  #: bytes on a rank
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)

    def best(self) -> Optional[Plan]:
        """Returns the fastest plan; None if no schedule is usable."""
        planned = [plan for plan in self.schedules if plan.total_s is not None]
        return min(planned, key=lambda plan: plan.total_s or 0, default=None)


@dataclass
class GridAnswer:
    """The result of `tune_grid`: each layer of a grid under all schedules."""
    cluster: str
    grid: str
    layers: List[GridLayer]
    records: Optional[str] = None  #: file with the records; None: not asked for
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        rows: List[List[Any]] = []
        for layer in self.layers:
            best = layer.best()
            rows.append([layer.layer, layer.reason or layer.status, "", "", ""] if best is None or not best.total_s else
                        [layer.layer, best.schedule, f"{1e3 * best.total_s:.3f}", best.degree_forward,
                         best.degree_backward])
        return (_html.caption(self.grid, self.cluster) +
                _html.table(["layer", "fastest schedule", "iteration ms", "r_f", "r_b"], rows))


@dataclass
class Estimate:
    """Bytes on one rank of a pipeline stage, under one model of its activations."""
    activations_model: str  #: name of the rule that counts activations
    total_bytes: float
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    buffers_bytes: float  #: buffers of collectives
    fits: Optional[bool] = None  #: whether the total is below the rank's memory
    stage: int = 0
    reason: Optional[str] = None  #: excess over the rank's memory; None: it fits
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Memory:
    """The result of `memory`: estimates of the memory that a rank needs."""
    cluster: str
    layer: Layer
    estimates: List[Estimate]
    model: str = ""
    layers: int = 1
    micro_batches: int = 1
    memory_bytes: Optional[float] = None  #: bytes of memory of a rank; None: unknown
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)

    def _repr_html_(self) -> str:
        parts = ["weights", "gradients", "optimizer", "activations", "buffers", "total"]
        rows = [[each.activations_model, each.stage] +
                [f"{getattr(each, part + '_bytes') / 2**30:.2f}" for part in parts] +
                ["" if each.fits is None else "yes" if each.fits else "no"] for each in self.estimates]
        return (_html.caption(self.model or "layer", self.cluster) +
                _html.table(["counted as", "stage"] + [part + " GiB" for part in parts] + ["fits"], rows))


@dataclass
class Record:
    """One case of a run. Keys of times end in `_s` and are seconds; docs/formats.md lists them."""
    key: str
    status: str
    parameters: Dict[str, Any]
    prediction: Dict[str, Any]
    summary: Dict[str, Any]  #: measured values
    schedule: Optional[str] = None
    extra: Dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Records:
    """The last run of a file of records."""
    path: str
    command: str  #: command line of the run
    cases: List[Record]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def _repr_html_(self) -> str:
        def milliseconds(part: Dict[str, Any]) -> str:
            total = part.get("total_s", part.get("median_s"))
            return f"{1e3 * total:.3f}" if isinstance(total, (int, float)) else ""
        rows = [[each.key, each.status, milliseconds(each.prediction), milliseconds(each.summary)]
                for each in self.cases]
        return (_html.caption(self.path, self.command) +
                _html.table(["key", "status", "predicted ms", "measured ms"], rows))


_TUNE_ALONE = {"shape", "current", "measured", "strict", "out", "overwrite", "strategy_layers", "measure", "top", "all",
               "trace"}


def _tuned(records: Union[str, Path, None], given: Dict[str, Any]) -> Dict[str, Any]:
    for name, instead in (("out", "records=FILE keeps records"),
                          ("overwrite", "records=FILE is replaced if it is there"),
                          ("no_verify", "nothing is run in any case")):
        if name in given:
            raise BadInput(f"{name}: found {given[name]!r}, expected no such argument; {instead}", BAD_INPUT)
    with tempfile.TemporaryDirectory(prefix="moetune-") as scratch:
        out = records or Path(scratch) / "records.jsonl"
        return run("tune", no_verify=True, out=out, overwrite=True, **given)


def tune(model: Union[str, Path, None] = None, cluster: Union[str, Path] = "testbed-b", *,
         layer: Union[str, Path, None] = None, shape: Optional[str] = None,
         schedule: Union[str, Sequence[str], None] = None, current: Optional[str] = None, nodes: Optional[int] = None,
         batch: Optional[int] = None, seq: Optional[int] = None, micro_batches: Optional[int] = None,
         dtype: Optional[str] = None, dp: Optional[int] = None, mp: Optional[int] = None, ep: Optional[int] = None,
         esp: Optional[int] = None, pp: Optional[int] = None, zero: Optional[int] = None,
         recompute: Optional[str] = None, records: Union[str, Path, None] = None, **flags: Flag) -> Answer:
    """Finds the best schedule and numbers of chunks for a layer or a model on a cluster. Nothing is measured or run.

    Args:
        model: name of a model, or path of its file or of a Hugging Face config.json.
        cluster: name of a cluster profile, or path of its file.
        layer: name or file of a layer; `batch`, `seq`, `model_dim=`, `hidden=`, `experts=` and so on override it.
        shape: "auto" also searches parallel groups, pipeline stages, micro-batches, ZeRO and recomputation.
        schedule: the schedules to compare; None: all.
        current: SCHEDULE[:R_F[:R_B]] that is used today, to compare with, and the layout: "tutel:2:2,mp=2,ep=8".
        nodes: nodes of the cluster; None: all that the profile has.
        batch: samples of one MP group and micro-batch (B).
        seq: tokens of a sample (L).
        micro_batches: micro-batches of an iteration.
        dtype: float32, float16, bfloat16 or float64.
        dp, mp, ep, esp, pp: sizes of the data-parallel, model-parallel, expert-parallel and expert-sharding groups,
            and number of pipeline stages.
        zero: ZeRO stage.
        recompute: none, selective or full.
        records: file to write records to (JSON Lines), replaced if it is there; None: no records are kept.
        flags: other flags of `moetune tune`.

    Returns:
        An Answer. Times are seconds of an iteration, sizes are bytes of a rank.

    Raises:
        BadInput: a flag or file is not accepted, or no schedule applies.
    """
    given = dict(model=model, cluster=cluster, layer=layer, shape=shape, schedule=schedule, current=current,
                 nodes=nodes, batch=batch, seq=seq, micro_batches=micro_batches, dtype=dtype, dp=dp, mp=mp, ep=ep,
                 esp=esp, pp=pp, zero=zero, recompute=recompute, **flags)
    document = _tuned(records, given)
    if "use" not in document:
        raise BadInput("tune: found neither a model nor a layer, expected one; tune_grid plans a grid", BAD_INPUT)
    current_plan = document.get("current")
    return _made(Answer, document, layer=_made(Layer, document["layer"]), use=_plan(document["use"]),
                 ranking=[_plan(each) for each in document["ranking"]],
                 current=_plan(current_plan) if current_plan else None, flags=given,
                 records=str(records) if records else None)


def tune_grid(grid: Union[str, Path, None] = None, cluster: Union[str, Path] = "testbed-b", *,
              schedule: Union[str, Sequence[str], None] = None, nodes: Optional[int] = None,
              records: Union[str, Path, None] = None, **flags: Flag) -> GridAnswer:
    """Finds the best schedule and numbers of chunks for every layer of a grid. Nothing is measured or run.

    Args:
        grid: name of a grid, or path of its file; None: the cluster's own.
        flags: other flags of `moetune tune`.
        All others are those of `tune`.

    Returns:
        A GridAnswer. Times are seconds of an iteration of one layer, sizes are bytes of a rank.

    Raises:
        BadInput: a flag or file is not accepted.
    """
    document = _tuned(records, dict(grid=grid, cluster=cluster, schedule=schedule, nodes=nodes, **flags))
    if "grid" not in document:
        raise BadInput("tune_grid: found a layer or a model, expected a grid; tune plans them", BAD_INPUT)
    layers = [_made(GridLayer, each, schedules=[_plan(plan) for plan in each.get("schedules", [])])
              for each in document["layers"]]
    return _made(GridAnswer, document, layers=layers, records=str(records) if records else None)


def simulate(model: Union[str, Path, None] = None, cluster: Union[str, Path] = "testbed-b", *,
             layer: Union[str, Path, None] = None, schedule: Union[str, Sequence[str], None] = None,
             nodes: Optional[int] = None, batch: Optional[int] = None, seq: Optional[int] = None,
             micro_batches: Optional[int] = None, dtype: Optional[str] = None, dp: Optional[int] = None,
             mp: Optional[int] = None, ep: Optional[int] = None, esp: Optional[int] = None, pp: Optional[int] = None,
             zero: Optional[int] = None, recompute: Optional[str] = None, degree_forward: Optional[int] = None,
             degree_backward: Optional[int] = None, records: Union[str, Path, None] = None,
             **flags: Flag) -> Simulation:
    """Simulates a layer or a model under schedules, and returns every task with its start and end.

    Args:
        degree_forward, degree_backward: chunks of the forward and the backward; None: the best.
        flags: other flags of `moetune simulate`.
        All others are those of `tune`.

    Returns:
        A Simulation, whose plans have lanes and tasks. Times are seconds of an iteration.

    Raises:
        BadInput: a flag or file is not accepted, or no schedule applies.
    """
    given = dict(model=model, cluster=cluster, layer=layer, schedule=schedule, nodes=nodes, batch=batch, seq=seq,
                 micro_batches=micro_batches, dtype=dtype, dp=dp, mp=mp, ep=ep, esp=esp, pp=pp, zero=zero,
                 recompute=recompute, degree_forward=degree_forward, degree_backward=degree_backward, **flags)
    if records:
        given.update(out=records, overwrite=True)
    document = run("simulate", **given)
    plans = document.pop("schedules", None) or [document]  # one schedule's document is the plan itself
    whole = document if "layer" in document else next((plan for plan in plans if "layer" in plan), None)
    if whole is None:
        raise BadInput(plans[0].get("reason", "no schedule applies"), BAD_INPUT)
    shared = {key: whole[key] for key in ("cluster", "notes") if key in whole}
    others = {} if plans[0] is document else document
    return _made(Simulation, {**shared, **others}, layer=_made(Layer, whole["layer"]),
                 schedules=[_plan(plan) for plan in plans])


def memory(model: Union[str, Path, None] = None, cluster: Union[str, Path] = "testbed-b", *,
           layer: Union[str, Path, None] = None, nodes: Optional[int] = None, batch: Optional[int] = None,
           seq: Optional[int] = None, micro_batches: Optional[int] = None, dtype: Optional[str] = None,
           dp: Optional[int] = None, mp: Optional[int] = None, ep: Optional[int] = None, esp: Optional[int] = None,
           pp: Optional[int] = None, zero: Optional[int] = None, recompute: Optional[str] = None,
           memory_gib: Optional[float] = None, **flags: Flag) -> Memory:
    """Estimates the bytes of a layer or a model on one rank, and whether they fit.

    Args:
        zero: ZeRO stage: 1 shards optimizer states, 2 gradients too, 3 weights too.
        memory_gib: memory of a rank in GiB; None: the profile's.
        flags: other flags of `moetune memory`.
        All others are those of `tune`.

    Returns:
        A Memory, with an estimate for each way to count activations (and each pipeline stage). Sizes are bytes.

    Raises:
        BadInput: a flag or file is not accepted.
    """
    document = run("memory", model=model, cluster=cluster, layer=layer, nodes=nodes, batch=batch, seq=seq,
                   micro_batches=micro_batches, dtype=dtype, dp=dp, mp=mp, ep=ep, esp=esp, pp=pp, zero=zero,
                   recompute=recompute, memory_gib=memory_gib, **flags)
    if "estimates" not in document:
        raise BadInput("memory: found no estimates of a layer or a model; run('memory', ...) returns the document",
                       BAD_INPUT)
    return _made(Memory, document, layer=_made(Layer, document["layer"]),
                 estimates=[_made(Estimate, each) for each in document["estimates"]])


def read_records(path: Union[str, Path]) -> Records:
    """Reads the last run of a file of records (JSON Lines, or packed in .gz), of any verb.

    Returns:
        Records, which iterates over the cases in file order; if a key occurs again, the last one counts.

    Raises:
        BadInput: the file can't be read or is no file of records; the text names file, line and key.
    """
    try:
        found = _records.Records(str(path))
    except _records.BadInput as error:
        raise BadInput(str(error), BAD_INPUT) from None
    return Records(str(path), found.command, [_made(Record, case) for case in found.cases])
