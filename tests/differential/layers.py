"""Every schedule of a layer as the program tuned it, replayed; its bounds; the best degrees."""
import groups
import questions
import schedules
import volumes
from collectives import drop_derivable
from flows import dense_gradient_bytes
from replay import makespan, replay

HOME = {"combine", "exchange", "sum", "gather", "home_copy"}
CHOOSING = {"parm", "monta", "fsmoe-interleaved", "lina-packed"}


class Phases:
    """A schedule's two phases at its degrees, replayed. Recomputed in full, the forward runs again before the backward:
    nothing of either runs beside the other."""

    def __init__(self, schedule, profile, layer, degrees, split=None, micro_op_bytes=30e6):
        self.forwards = layer.forwards
        self.tasks, self.start, self.end = [], [], []
        for backward in (False, True):
            own = degrees if not backward else degrees[::-1]
            tasks = schedules.phase(schedule, profile, layer, backward, own, split, micro_op_bytes)
            start, end = replay(tasks.orders, tasks.after, tasks.seconds, schedules.slowdown(profile, layer, tasks))
            self.tasks.append(tasks)
            self.start.append(start)
            self.end.append(end)

    def runs(self):
        """What runs, in order: each phase, and when it begins."""
        forward = makespan(self.end[0])
        return [(0, i * forward) for i in range(self.forwards)] + [(1, self.forwards * forward)]

    def seconds(self, phase):
        """A backward takes all that runs from the first forward's end on."""
        again = (self.forwards - 1) * makespan(self.end[0]) if phase else 0
        return again + makespan(self.end[phase])

    def moe_seconds(self, phase):
        """Seconds from the start of D1 until the last row is home and its weights' gradients are made; None without
        AlltoAll."""
        kinds = self.tasks[phase].kind
        first = [self.start[phase][t] for t, kind in enumerate(kinds) if kind == "dispatch"]
        last = [self.end[phase][t] for t, kind in enumerate(kinds) if kind in HOME or kind == "expert_dw"]
        return max(last) - min(first) if first and last else None


def check_answer(tally, answer, profile, layer, seed):
    """One schedule as the program answers it, against its replay here."""
    name = answer["schedule"]
    what = f"seed {seed}, {name} at {answer.get('degree_forward')}/{answer.get('degree_backward')}"
    if answer["status"] != "ok":
        return None
    total = answer["forward_s"] + answer["backward_s"]
    tally.at_most("bound of any degrees", answer["bound_s"], total, what)
    tally.at_most("bound of its degrees", answer["degree_bound_s"], total, what)
    tally.at_most("bounds, free to fixed", answer["bound_s"], answer["degree_bound_s"], what)
    if name in CHOOSING:
        return total
    degrees = (answer["degree_forward"], answer["degree_backward"])
    mine = Phases(name, profile, layer, degrees, schedules.split_of(answer, layer), answer.get("micro_op_bytes", 30e6))
    kind = "replay" if not profile.contention else "replay under contention"
    for phase, key in enumerate(("forward_s", "backward_s")):
        tally.same(kind, answer[key], mine.seconds(phase), f"{what}, {key}")
        moe = mine.moe_seconds(phase)
        if moe is not None:
            tally.same("MoE part", answer["moe_" + key], moe, f"{what}, moe_{key}")
    if "lanes" in answer:
        busy = {}
        for phase, _ in mine.runs():
            tasks = mine.tasks[phase]
            for task in range(len(tasks.kind)):
                lane = tasks.lanes[tasks.lane[task]]
                busy[lane] = busy.get(lane, 0) + mine.end[phase][task] - mine.start[phase][task]
        for lane in answer["lanes"]:
            tally.same("busy lanes", lane["busy_s"], busy.get(lane["name"], 0), f"{what}, lane {lane['name']}")
    check_tasks(tally, answer, mine, what)
    return total


def check_tasks(tally, answer, mine, what):
    """Each task starts and ends as it does here; what runs again is part of the backward."""
    theirs = {}
    for task in answer.get("tasks", []):
        theirs.setdefault((task["phase"], task["name"], task["chunk"]), []).append((task["start_s"], task["end_s"]))
    if not theirs:
        return
    ours = {}
    for run, (phase, begin) in enumerate(mine.runs()):
        tasks = mine.tasks[phase]
        for i in range(len(tasks.kind)):
            key = ("backward" if run else "forward", tasks.kind[i], tasks.chunk[i])
            ours.setdefault(key, []).append((begin + mine.start[phase][i], begin + mine.end[phase][i]))
    count = [{key: len(times) for key, times in listed.items()} for listed in (theirs, ours)]
    tally.equal("kinds and chunks of tasks", *count, what)
    scale = answer["forward_s"] + answer["backward_s"]
    for key in theirs.keys() & ours.keys():
        for found, expected in zip(sorted(theirs[key]), sorted(ours[key])):
            for one, other, event in zip(found, expected, ("begins", "ends")):
                tally.same("starts and ends of tasks", one, other, f"{what}, {key} {event}", absolute=1e-12 * scale)


def check_choices(tally, totals, answers, seed, contention):
    """What a choosing schedule takes is no worse than what it chooses from."""
    what = f"seed {seed}"
    if None not in (totals.get("monta"), totals.get("monta-o1"), totals.get("monta-o2"), totals.get("monta-o3")):
        best = min(totals["monta-o1"], totals["monta-o2"], totals["monta-o3"])
        tally.same("monta takes the best", totals["monta"], best, what)
    if totals.get("parm") is not None:
        tally.same("parm is its variant", totals["parm"], totals[answers["parm"]["variant"]], what)
    if contention:  # what is beside something may then be the slower, but where nothing is put there
        if None not in (totals.get("fsmoe"), totals.get("fsmoe-no-partition")):
            tally.at_most("fsmoe is never slower than fsmoe-no-partition", totals["fsmoe"],
                          totals["fsmoe-no-partition"], what)
        return
    for better, worse in (("fsmoe-interleaved", "fsmoe"), ("fsmoe", "fsmoe-no-partition"), ("tutel-improved", "tutel"),
                          ("tutel", "ds-moe")):
        if totals.get(better) is not None and totals.get(worse) is not None:
            tally.at_most(f"{better} is never slower than {worse}", totals[better], totals[worse], what)


def check_layer(tally, program, seed, rng, contention):
    profile = questions.random_cluster(rng, tuple(volumes.BYTES), seqs=(32, 64, 128, 256, 512, 1024))
    layer = questions.random_layer(rng, profile)
    layer.recompute = questions.random_recompute(rng)
    if contention:
        questions.add_contention(rng, profile)
    if rng.random() < 0.5:
        drop_derivable(rng, profile, groups.of(layer, profile.ranks_per_node),
                       groups.spreads(layer, profile.ranks_per_node))
    cluster = program.write("cluster.toml", questions.toml_of(profile))
    document, error = program.json(["simulate", "--schedule", "all", "--cluster", cluster] + questions.flags_of(layer))
    if document is None:
        tally.failures.append(f"seed {seed}: {error}")
        return
    answers = {answer["schedule"]: answer for answer in document["schedules"]}
    totals = {name: check_answer(tally, answer, profile, layer, seed) for name, answer in answers.items()}
    check_choices(tally, totals, answers, seed, contention)
    rows = volumes.rows_of(layer, 1, 1)
    if not contention and rows <= 12:
        check_degrees(tally, answers, profile, layer, seed)


def check_degrees(tally, answers, profile, layer, seed):
    """Every degree up to T_rank: the best one is the program's, and none goes below its bound."""
    most = max(1, int(volumes.rows_of(layer, 1, 1)))
    for name in ("tutel", "tutel-improved", "fsmoe-no-partition", "fsmoe-no-iio", "fsmoe"):
        answer = answers[name]
        if answer["status"] != "ok":
            continue
        pairs = [(f, b) for f in range(1, most + 1) for b in range(1, most + 1)
                 if name in schedules.APART or f == b]
        if layer.rounding != "lcm" and name in schedules.APART:
            forward = min(phase_seconds(name, profile, layer, False, f) for f in range(1, most + 1))
            backward = min(best_split(name, profile, layer, (1, b)) for b in range(1, most + 1))
            best = layer.forwards * forward + backward
        else:
            best = min(layer.forwards * phase_seconds(name, profile, layer, False, f, b)
                       + best_split(name, profile, layer, (f, b)) for f, b in pairs)
        total = answer["forward_s"] + answer["backward_s"]
        what = f"seed {seed}, {name}, degrees up to {most}"
        curve = any("points" in row for row in profile.comm if row["op"] in ("allreduce", "allgather", "reducescatter"))
        if curve and name in schedules.SPLIT | schedules.BESIDE_DENSE:
            tally.at_most("degrees and splits under curves", total, best, what, tolerance=1e-7)
        else:
            tally.same("best degrees and splits", total, best, what, tolerance=1e-7)
        tally.at_most("bound below every degree", answer["bound_s"], best, what)


def phase_seconds(name, profile, layer, backward, degree, other=1, split=None):
    tasks = schedules.phase(name, profile, layer, backward, (degree, other), split)
    return makespan(replay(tasks.orders, tasks.after, tasks.seconds)[1])


def best_split(name, profile, layer, degrees):
    """The least backward over all splits of the gradients: convex between the two ends, where a slice is empty."""
    forward, backward = degrees
    total = int(dense_gradient_bytes(layer) / layer.element)

    def seconds(beside):
        beside *= layer.element
        whole = total * layer.element
        return phase_seconds(name, profile, layer, True, backward, forward, (whole - beside, beside))

    if name not in schedules.SPLIT | schedules.BESIDE_DENSE or layer.replicas == 1:
        return seconds(0)
    low, high = 1, total - 1
    while high - low > 2:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        if seconds(left) <= seconds(right):
            high = right
        else:
            low = left
    return min([seconds(0), seconds(total)] + [seconds(x) for x in range(low, high + 1)])


def check_golden(tally, program):
    """Checks figures of FSMoE's published optimiser: the MoE part's forward, to four places of a millisecond."""
    printed = {1: 86.2269, 2: 64.1200, 4: 59.7008, 8: 57.8623, 12: 57.5793}
    for degree, milliseconds in printed.items():
        answer, error = program.json(
            ["simulate", "--cluster", "fsmoe-optimiser", "--schedule", "fsmoe", "--batch", 4, "--seq", 1024,
             "--model-dim", 4096, "--hidden", 14336, "--heads", 32, "--experts", 4, "--top-k", 2, "--capacity-factor",
             1.2, "--capacity-rounding", "exact", "--ffn", "mixtral", "--mp", 8, "--esp", 8, "--ep", 4,
             "--degree-forward", degree])
        if answer is None:
            tally.failures.append(f"golden, r = {degree}: {error}")
            continue
        tally.same("golden degrees", answer["moe_forward_s"] * 1e3, milliseconds, f"r = {degree}", tolerance=1e-6)
