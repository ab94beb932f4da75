"""docs/schedules.md: the order of tasks on each lane, by a schedule's name."""
import math

import volumes
from flows import Flow, Pricer, Tasks, dense_gradient_bytes, dense_layer, sharded_weights
from replay import Slowdown, interleave

MOE_PART = {"dispatch", "allgather", "reducescatter", "combine", "shared_allgather", "shared_reducescatter"}
FLOW = {"ds-moe-replicated": "replicated", "parm-s1": "fused", "parm-s2-aas": "fused-gated", "parm-s2": "fused-gated",
        "monta-baseline": "tensor", "monta-o1": "dropped", "monta-o2": "dropped", "monta-o3": "dropped"}
ONE_LANE = {"ds-moe", "ds-moe-replicated", "tutel", "tutel-improved", "pipemoe+lina", "fsmoe-no-iio"}
DEGREE_ONE = {"ds-moe", "ds-moe-replicated", "parm-s1", "parm-s2-aas", "parm-s2", "monta-baseline", "monta-o1",
              "lina-baseline", "lina-fixed", "lina-priority"}
# The same r for both phases.
ONE_DEGREE = {"tutel", "tutel-improved", "pipemoe+lina", "lina-partition", "lina", "monta-o2", "monta-o3"}
APART = {"fsmoe-no-iio", "fsmoe-no-partition", "fsmoe", "fsmoe-dw"}
AFTER_BACKWARD = {"ds-moe", "ds-moe-replicated", "tutel", "fsmoe-no-partition", "parm-s1", "parm-s2-aas", "parm-s2",
                  "monta-baseline", "monta-o1", "monta-o2", "monta-o3"}
BESIDE_DENSE = {"tutel-improved"}
# In the MoE part, beside the dense part, and under contention behind everything.
SPLIT = {"fsmoe-no-iio", "fsmoe", "fsmoe-dw"}
# Backward of experts: gradients of inputs chunk by chunk, behind all of them those of weights. Of attention: gradients
# of its input, then those of its weights, beside the sum over MP.
HALVES = {"fsmoe-dw"}
PIECES = {"pipemoe+lina", "lina-baseline", "lina-fixed", "lina-priority", "lina-partition", "lina"}
SEQUENCE = {"ds-moe", "ds-moe-replicated", "parm-s1", "parm-s2-aas", "monta-baseline", "monta-o1"}


def phase(schedule, profile, layer, backward, degrees, split=None, micro_op_bytes=30e6,
          gradients=True):
    """The tasks of one phase at degrees (its own, the other's). split: bytes in the MoE part, bytes beside the dense
    part."""
    degree, other_degree = degrees
    one_lane = schedule in ONE_LANE
    flow_name = FLOW.get(schedule, "sharded")
    lanes = ["compute", "comm"] if one_lane else ["compute", "inter", "intra", "copy", "gradient"]
    tasks = Tasks(lanes)
    rows = volumes.rows_of(layer, degree, other_degree)
    pricer = Pricer(profile, layer)
    flow = Flow(flow_name, pricer, tasks, backward, volumes.chunk_rows(rows, degree, layer.rounding), one_lane)
    gradient = None
    if gradients and backward and pricer.size["dp"] > 1:
        gradient = Gradients(flow, schedule, split, micro_op_bytes)
    flow.head()
    flow.shared_begin(in_sequence=schedule in SEQUENCE)
    flow.halves = backward and schedule in HALVES
    moe_part(schedule, flow, gradient, pricer)
    if flow.halves:
        for c in range(degree):
            flow.expert_weights(c)
    if schedule not in SEQUENCE:
        flow.shared_end()
    flow.tail(gradient.beside if gradient and schedule in BESIDE_DENSE | SPLIT else None)
    if gradient:
        gradient.at_end()
    return tasks


def dense_phase(schedule, profile, layer, backward, hidden):
    """The tasks of one phase of a dense layer, without gradients: degrees and orders of a schedule say nothing."""
    one_lane = schedule in ONE_LANE
    tasks = Tasks(["compute", "comm"] if one_lane else ["compute", "inter", "intra", "copy", "gradient"])
    dense_layer(Pricer(profile, layer), tasks, FLOW.get(schedule, "sharded"), backward, hidden, one_lane,
                backward and schedule in HALVES)
    return tasks


class Gradients:
    """Where the dense gradients of the layer after this one go. They are there when the backward begins."""

    def __init__(self, flow, schedule, split, micro_op_bytes):
        self.flow, self.schedule = flow, schedule
        self.total = dense_gradient_bytes(flow.layer)
        self.moe, self.dense = split or (0, self.total)
        self.micro_op_bytes = micro_op_bytes

    def send(self, size, after=(), lane=None):
        if size > 0:
            return self.flow.collective("gradient", "allreduce", "dp", size, list(after), lane=lane)

    def in_moe(self):
        if self.schedule in SPLIT:
            self.send(self.moe)

    def beside(self):
        self.send(self.dense)

    def at_end(self):
        if self.schedule in AFTER_BACKWARD:
            self.send(self.total, self.flow.end)
        elif self.schedule in BESIDE_DENSE:
            self.send(self.total - self.dense, self.flow.end)
        elif self.schedule in SPLIT:
            self.send(self.total - self.moe - self.dense, self.flow.end)
        elif self.schedule in PIECES:
            self.in_pieces()

    def in_pieces(self):
        flow, tasks = self.flow, self.flow.t
        whole = self.schedule in ("lina-baseline", "lina-fixed", "lina-priority")
        sizes = buckets(flow.layer) if whole else micro_ops(flow.layer, self.micro_op_bytes)
        lane = "gradient" if self.schedule == "lina-baseline" else flow.lane_of("dp")
        before = [list(order) for order in tasks.orders]
        pieces = [self.send(size, lane=lane)[0] for size in sizes]
        if self.schedule == "lina-baseline":
            return
        lane = tasks.lanes.index(lane)
        if self.schedule == "lina-fixed":  # right behind the AlltoAll pair, whatever runs then
            moe = [i for i, t in enumerate(before[lane]) if tasks.kind[t] in MOE_PART]
            place = moe[-1] + 1 if moe else 0
            tasks.orders[lane] = before[lane][:place] + pieces + before[lane][place:]
            return

        def may_send(left):
            kinds = [tasks.kind[t] for t in left]
            if self.schedule == "lina":  # none once the backward of combining has begun: an AlltoAll is imminent
                return kinds.count("dispatch") < len(flow.rows) or not kinds.count("dispatch")
            return True

        tasks.orders[lane] = interleave(before, tasks.after, tasks.seconds, lane, pieces, may_send)


def tensors(layer):
    """Bytes of a rank's part of each dense weight: those of attention, and of the shared expert."""
    attention = [elements * layer.element for elements in sharded_weights(layer)]
    shared = [layer.model_dim * layer.shared_hidden / layer.mp * layer.element] * layer.gemms
    return [t for t in attention + shared if t]


def micro_ops(layer, most):
    """Each tensor cut alone into as few equal pieces as are no larger than asked."""
    pieces = []
    for tensor in tensors(layer):
        elements = round(tensor / layer.element)
        count = math.ceil(tensor / most)
        edges = [elements * i // count * layer.element for i in range(count + 1)]
        pieces += [b - a for a, b in zip(edges, edges[1:])]
    return pieces


def buckets(layer, least=25 * 2**20):
    """Gradients fused as DDP does: a bucket is full once it holds 25 MiB."""
    full, sizes = 0, []
    for tensor in tensors(layer):
        full += tensor
        if full >= least:
            sizes.append(full)
            full = 0
    return sizes + ([full] if full else [])


def moe_part(schedule, flow, gradient, pricer):
    r = range(len(flow.rows))
    in_moe = gradient.in_moe if gradient else (lambda: None)
    name = flow.name
    if schedule == "ds-moe-replicated":
        flow.dispatch(0), flow.expert(0), flow.allreduce(0), flow.combine(0)
    elif schedule == "monta-baseline":
        flow.dispatch(0), flow.expert(0), flow.allreduce(0), flow.combine(0)
    elif name == "dropped":
        dropped(schedule, flow, pricer)
    elif name in ("fused", "fused-gated"):
        parm(schedule, flow, pricer)
    elif flow.one_lane or pricer.network["ep"] in (pricer.network["esp"], "none"):
        one_lane_order(schedule, flow, r, in_moe)
    elif schedule in ("lina-partition",):
        for c in r:
            flow.dispatch(c), flow.allgather(c)
        flow.experts(r)
        for c in r:
            flow.reducescatter(c), flow.combine(c)
    else:
        for c in r:
            flow.dispatch(c)
        in_moe()
        for c in r:
            flow.allgather(c)
        for c in r:
            flow.expert(c)
        for c in r:
            flow.reducescatter(c)
        for c in r:
            flow.combine(c)


def one_lane_order(schedule, flow, r, in_moe):
    """D1 G1 D2 G2 .. Dr Gr [GAR] S1 C1 .. Sr Cr."""
    for c in r:
        flow.dispatch(c), flow.allgather(c)
        if schedule != "lina-partition":
            flow.expert(c)
    if schedule == "lina-partition":
        flow.experts(r)
    in_moe()
    for c in r:
        flow.reducescatter(c), flow.combine(c)


def dropped(schedule, flow, pricer):
    """MoNTA: Drop, AlltoAll, AllGather of a chunk, its copy where there are several; one expert; the same back."""
    r = range(len(flow.rows))
    lane = "copy" if schedule == "monta-o3" else flow.lane_of("mp")
    for c in r:
        flow.dispatch(c)
        flow.allgather(c)
        if len(flow.rows) > 1 and pricer.size["mp"] > 1:
            flow.copy(c, lane)
    flow.experts(r)
    whole = sum(flow.rows)
    made = flow.done["made", 0]
    summed = flow.collective("reducescatter", "reducescatter", "esp", flow.step * whole * flow.layer.mp, made)
    for c in r:
        flow.put("summed", c, summed)
        flow.combine(c)
        size = flow.step * flow.rows[c] * flow.layer.mp
        after = flow.collective("gather", "allgather", "mp", size, flow.done["home", c], c)
        if len(flow.rows) > 1 and pricer.size["mp"] > 1:
            after = flow.t.add("home_copy", c, lane, flow.p.moved(size), after)
        flow.put("home", c, after)


def parm(schedule, flow, pricer):
    flow.dispatch(0), flow.expert(0)
    layer, whole = flow.layer, flow.total
    fused = whole * layer.esp
    if schedule != "parm-s2":
        flow.combine(0)
        after = flow.done["home", 0]
        if layer.esp > 1:
            after = flow.compute("sum", pricer.moved(fused), after)
        if schedule == "parm-s2-aas":
            after = flow.collective("gather", "allgather", "mp", whole * layer.mp, after)
        flow.put("home", 0, after)
        return
    phases = layer.ep if layer.ep > 1 else 1
    task_s = pricer.profile.task_s
    seconds = pricer.collective("a2a-ep-esp", "ep-esp", fused) if pricer.size["ep-esp"] > 1 else 0
    seconds = (seconds - task_s) / phases + task_s  # together they cost one AlltoAll, each of them is a task
    home = []
    for c in range(phases):
        after = flow.done["made", 0]
        if pricer.size["ep-esp"] > 1:
            after = flow.t.add("exchange", c, flow.lane_of("ep-esp"), seconds, after, pricer.network["ep-esp"],
                                "ep-esp")
        if layer.esp > 1:
            after = flow.compute("sum", pricer.moved(fused / phases), after, c)
        home += flow.collective("gather", "allgather", "mp", whole * layer.mp / phases, after, c)
    flow.put("home", 0, home)


def slowdown(profile, layer, tasks):
    """[contention] by what runs: a collective is its network, whatever its lane; a copy a copy, also where MoNTA queues
    it behind AllGathers. Gradients on a lane of their own share their network with the others, a half each."""
    def resource(task):
        if tasks.kind[task] in ("copy", "home_copy"):
            return "copy"
        return tasks.networks[task] or "compute"

    def factor(task, other):
        one, two = resource(task), resource(other)
        return 2 if one == two else profile.contention.get(f"{one}_by_{two}", 1)

    def stall(task, other):
        one, two = resource(task), resource(other)
        return 0 if one == two else profile.contention.get(f"{one}_by_{two}_stall_s", 0)

    shared = any(tasks.lanes[tasks.lane[t]] == "gradient" for t in range(len(tasks.kind)))
    return Slowdown(factor, stall) if shared or profile.contention else None


def split_of(answer, layer):
    """Bytes in the MoE part, and beside the dense part, as an answer of the program says; the others go last.

    Schedules that split gradients between both say the first, tutel-improved the second.
    """
    moe, after = answer.get("gar_in_moe_bytes", 0), answer.get("gar_after_bytes", 0)
    beside = 0 if answer["schedule"] in BESIDE_DENSE else dense_gradient_bytes(layer) - moe - after
    return moe, answer.get("gar_beside_dense_bytes", beside)
