"""docs/tuning.md: a whole model's iteration over micro-batches and pipeline stages.

A stage runs blocks: the forward or the backward of one micro-batch through its layers. GPipe runs all forwards first,
1F1B as many as stages follow, then one backward after one forward. With virtual stages a block is of a chunk of the
stage's layers: all layers are cut into parts in a row, dealt out to the stages in turn. Stages have equally many
layers, the first ones one more if that does not work out; the first and the last may have their own number. A send
takes the time of the exchange on its sender's lane; its receive waits for it in a queue of receives alone (networks are
full duplex) and for the end of the receiver's block before, and takes what every task takes. Each part of samples is a
micro-batch; backwards take the last part first, so that 1F1B runs as many more forwards ahead as follow the first part.
Attention waits for that of the part before, in a backward for that of the part behind. Behind its last block a stage
has its step (step.py). Gradients that no layer's backward sends, those of a stage's layers and of its embedding or
output projection, go at once behind it. Recomputed in full, a layer's backward begins with its forward.
"""
import copy

import groups
import questions
import schedules
from collectives import drop_derivable
from flows import Pricer
from replay import Slowdown, makespan, replay
from step import EMBEDDING, HEAD, Step

TYPES = ("float32", "bfloat16", "float16", "float64")
GATES = ("gshard", "switch", "topk", "sigmoid", "xmoe", "softmoe", "expert-choice")


def blocks(stages, stage, micro_batches, pipeline, chunks, sample_parts):
    """(part of the model, micro-batch, backward?) in the order of a stage. Interleaved, as many micro-batches as there
    are stages pass all of its chunks before the next ones do, and backwards come from the last chunk on."""
    group = stages if chunks > 1 else micro_batches
    rounds = [range(first, first + group) for first in range(0, micro_batches, group)]
    forwards = [(c * stages + stage, m, False) for some in rounds for c in range(chunks) for m in some]
    turned = [first + p for first in range(0, micro_batches, sample_parts) for p in reversed(range(sample_parts))]
    backwards = [(c * stages + stage, turned[m], True)
                 for some in rounds for c in reversed(range(chunks)) for m in some]
    if pipeline == "gpipe":
        return forwards + backwards
    behind = stages - 1 - stage
    ahead = behind + sample_parts - 1 if chunks == 1 else 2 * behind + (chunks - 1) * stages
    order = forwards[:ahead]
    for i, backward in enumerate(backwards):
        order += forwards[ahead + i:ahead + i + 1] + [backward]
    return order


def stage_layers(layers, stages, ends):
    """The number of layers of each stage, with those of the first and the last one, or 0 for no number of their own."""
    own = {stage: count for stage, count in ((0, ends[0]), (stages - 1, ends[1])) if count > 0}
    others = [stage for stage in range(stages) if stage not in own]
    for dealt in range(layers - sum(own.values())):
        stage = others[dealt % len(others)]
        own[stage] = own.get(stage, 0) + 1
    return [own[stage] for stage in range(stages)]


def phase_name(backward):
    return "backward" if backward else "forward"


class Iteration:
    """All stages' lanes in one plan."""

    def __init__(self, schedule, profile, layer, model):
        self.schedule, self.profile, self.layer, self.model = schedule, profile, layer, model
        self.lanes, self.orders, self.after, self.seconds = [], [], [], []
        self.pricer = Pricer(profile, layer)
        self.resources = []  # (stage, what runs the task)
        self.made = {}  # (kind, layer) -> tasks of all backwards
        self.attentions = {}  # (layer, micro-batch, backward?) -> the task that another part of its samples waits for
        self.steps = {}  # task -> (kind, stage, layer) of the step's
        self.passes = {}  # task -> (kind, phase, stage, micro-batch, layer, chunk) of the others
        self.outputs = {}  # (part of the model, micro-batch, backward?) -> tasks that end the block
        self.recvs = []
        self.tied = []  # (sum of a tied embedding, what its own end has before)
        self.ended = {}  # stage -> tasks that end its last block
        stages, chunks = layer.pp, model["chunks"]
        self.parts = stages * chunks
        sizes = stage_layers(model["layers"], stages, model["ends"])
        numbers = iter(range(model["layers"]))
        layers = [[next(numbers) for _ in range(sizes[part % stages] // chunks)] for part in range(self.parts)]
        for stage in range(stages):
            for part, micro_batch, backward in blocks(stages, stage, model["micro_batches"], model["pipeline"], chunks,
                                                      layer.parts):
                self.block(part, layers[part], micro_batch, backward)
            Step(self, stage, [number for part in range(stage, self.parts, stages) for number in layers[part]][::-1])
        for recv, sender in self.recvs:
            self.after[recv] += self.outputs[sender]
        for task, _ in self.tied:
            self.after[task] = [before for _, own in self.tied for before in own]

    def lane(self, stage, name):
        if (stage, name) not in self.lanes:
            self.lanes.append((stage, name))
            self.orders.append([])
        return self.orders[self.lanes.index((stage, name))]

    def add(self, stage, lane, seconds, after, resource=None):
        self.resources.append((stage, resource or lane))
        self.after.append(list(after))
        self.seconds.append(seconds)
        self.lane(stage, lane).append(len(self.seconds) - 1)
        return len(self.seconds) - 1

    def comm_lane(self, kind):
        return "comm" if self.schedule in schedules.ONE_LANE else groups.network(
            self.layer, kind, self.profile.ranks_per_node)

    def block(self, part, layers, micro_batch, backward):
        stage, last = part % self.layer.pp, self.parts - 1
        after = []
        if backward and part == last:
            after = self.outputs[part, micro_batch, False]
        elif part != (last if backward else 0):
            after = [self.receive(stage, self.ended.get(stage, []))]
            self.passes[after[0]] = ("recv", phase_name(backward), stage, micro_batch)
            sender = part + 1 if backward else part - 1
            self.recvs.append((after[0], ("sent", sender, micro_batch, backward)))
        again = backward and self.layer.recompute == "full"
        for number in reversed(layers) if backward else layers:
            if again:
                after = self.phase(stage, number, micro_batch, (False, backward), after)
            after = self.phase(stage, number, micro_batch, (backward, backward), after)
        weights = self.made.get(("attention_dw", number), [])  # the pass before waits for them, another stage doesn't
        after = [task for task in after if task not in weights]
        self.outputs[part, micro_batch, backward] = after
        self.ended[stage] = after
        if part != (0 if backward else last):
            size = self.layer.tokens * self.layer.model_dim * self.layer.element
            if schedules.FLOW.get(self.schedule, "sharded") == "sharded":
                size /= self.layer.mp  # the others have all tokens of their MP group between layers
            network = groups.network(self.layer, "pp", self.profile.ranks_per_node)
            seconds = self.pricer.collective("sendrecv", "pp", size)
            sent = self.add(stage, self.comm_lane("pp"), seconds, after, network)
            self.outputs["sent", part, micro_batch, backward] = [sent]
            self.passes[sent] = ("send", phase_name(backward), stage, micro_batch)

    def receive(self, stage, ended):
        """In a queue of its own. It begins once the stage's block before has ended; the send alone uses the network."""
        return self.add(stage, "receive", self.profile.task_s, ended, "receive")

    def phase(self, stage, number, micro_batch, phases, after):
        """The layer's tasks behind what is on the lanes; returns those that nothing of the layer follows. phases: are
        they a backward's, and do they run in one?"""
        backward, in_backward = phases
        layer = copy.copy(self.layer)
        layer.part = micro_batch % layer.parts
        if number in self.model["whole"]:
            layer.window = 0
        degree = self.model["degrees"][1 if backward else 0]
        other = self.model["degrees"][0 if backward else 1]
        if number in self.model["dense"]:
            hidden = self.model["dense_hidden"]
            tasks = schedules.dense_phase(self.schedule, self.profile, layer, backward, hidden)
        else:
            tasks = schedules.phase(self.schedule, self.profile, layer, backward, (degree, other), gradients=False)
        base = len(self.seconds)
        followed = {a for kind, waits in zip(tasks.kind, tasks.after) if kind != "attention_dw" for a in waits}
        for task in range(len(tasks.kind)):
            waits = [base + a for a in tasks.after[task]] or after
            kind = tasks.kind[task]
            resource = "copy" if kind in ("copy", "home_copy") else tasks.networks[task] or "compute"
            reads_keys = kind in ("attention", "attention_dx")
            if reads_keys:
                waits = waits + self.neighbour(number, micro_batch, backward)
            added = self.add(stage, tasks.lanes[tasks.lane[task]], tasks.seconds[task], waits, resource)
            self.passes[added] = (kind, phase_name(in_backward), stage, micro_batch, number, tasks.chunk[task])
            if reads_keys:
                self.attentions[number, micro_batch, backward] = added
            if backward:
                self.made.setdefault((kind, number), []).append(added)
        return [base + task for task in range(len(tasks.kind)) if task not in followed]

    def neighbour(self, number, micro_batch, backward):
        """The attention whose keys and values this one reads, or which adds to the gradients of this one's."""
        count, part = self.layer.parts, micro_batch % self.layer.parts
        if part == (count - 1 if backward else 0):
            return []
        return [self.attentions[number, micro_batch + (1 if backward else -1), backward]]

    def replayed(self):
        """Start and end of each task. Stages share no resource."""
        if not self.profile.contention:
            return replay(self.orders, self.after, self.seconds)
        of = self.resources

        def factor(task, other):
            return self.profile.contention.get(f"{of[task][1]}_by_{of[other][1]}", 1) if apart(task, other) else 1

        def stall(task, other):
            return self.profile.contention.get(f"{of[task][1]}_by_{of[other][1]}_stall_s", 0)

        def apart(task, other):
            return of[task][0] == of[other][0]

        return replay(self.orders, self.after, self.seconds,
                      Slowdown(factor, lambda task, other: stall(task, other) if apart(task, other) else 0))


def random_model(rng, profile):
    ranks = profile.nodes * profile.ranks_per_node
    stages = rng.choice([d for d in questions.divisors(ranks) if d <= 4])
    layer = questions.random_layer(rng, profile, pp=stages, dtype=rng.choice(TYPES))
    layer.rounding = "ragged"
    model = {"layers": stages * rng.randint(1, 3) + rng.randint(0, stages - 1),
             "vocabulary": 64 * layer.mp + rng.choice([0, 1, 5]),
             "tied": rng.random() < 0.5, "micro_batches": rng.randint(1, 5), "pipeline": rng.choice(["gpipe", "1f1b"]),
             "chunks": 1, "ends": (0, 0)}
    if stages > 1 and rng.random() < 0.5:
        model["chunks"], model["pipeline"] = rng.randint(2, 3), "1f1b"
        model["layers"] = stages * model["chunks"] * rng.randint(1, 2)
        model["micro_batches"] = stages * rng.randint(1, 3)
    if stages > 1 and rng.random() < 0.4:
        draw_ends(rng, stages, model)
    draw_dense(rng, layer, model)
    draw_windows(rng, layer, model)
    layer.gate, layer.norm = rng.choice(GATES), rng.choice([None, "layernorm", "rmsnorm", "none"])
    layer.zero = rng.randint(0, 1)
    if rng.random() < 0.3:
        questions.add_contention(rng, profile)
    drop_rows(rng, profile, layer)
    if rng.random() < 0.5:
        drop_derivable(rng, profile, groups.of(layer, profile.ranks_per_node),
                       groups.spreads(layer, profile.ranks_per_node))
    layer.recompute = questions.random_recompute(rng)
    if model["chunks"] == 1:
        questions.cut_samples(rng, layer)
        model["micro_batches"] *= layer.parts
    return layer, model


def draw_ends(rng, stages, model):
    """Layers of the first stage, of the last, or of both; chunks divide the layers of every stage."""
    chunks = model["chunks"]
    first, last = rng.choice([(1, 0), (0, 1), (1, 1)])
    model["ends"] = (first * chunks * rng.randint(1, 3), last * chunks * rng.randint(1, 3))
    others = stages - first - last
    between = others * chunks * rng.randint(1, 2)
    if chunks == 1 and others > 0:
        between += rng.randint(0, others - 1)
    model["layers"] = sum(model["ends"]) + between


def draw_dense(rng, layer, model):
    """Some layers without experts, by any of the file's keys; at least one keeps them."""
    count = model["layers"]
    model["dense"], model["dense_keys"] = set(), ""
    model["dense_hidden"] = layer.mp * rng.choice([8, 40, 64, 300, 1024])
    if count < 2 or rng.random() < 0.5:
        return
    keys = []
    if rng.random() < 0.5:
        every = rng.randint(2, 3)
        model["dense"] |= {n for n in range(count) if n % every != every - 1}
        keys.append(f"moe_every = {every}")
    if rng.random() < 0.5:
        first = rng.randint(1, count - 1)
        model["dense"] |= set(range(first))
        keys.append(f"first_dense = {first}")
    if not keys or rng.random() < 0.3:
        listed = rng.sample(range(count), rng.randint(1, count - 1))
        model["dense"] |= set(listed)
        keys.append(f"dense_layers = {listed}")
    if len(model["dense"]) == count:
        model["dense"] = set()
        return
    model["dense_keys"] = "\n".join(keys + [f"dense_hidden = {model['dense_hidden']}"])


def draw_windows(rng, layer, model):
    """A window in some layers, by a pattern that repeats over all of them."""
    model["whole"], model["window_keys"] = set(), ""
    if rng.random() < 0.6:
        return
    layer.causal, layer.window = True, rng.choice([1, 7, layer.seq // 2 + 1])
    layer.cp_exchange = "allgather"  # a window and a ring are refused
    pattern = [rng.random() < 0.5 for _ in range(rng.randint(1, 4))] + [True]
    rng.shuffle(pattern)
    model["whole"] = {n for n in range(model["layers"]) if not pattern[n % len(pattern)]}
    model["window_keys"] = 'windowed_layers = "' + "".join("1" if seen else "0" for seen in pattern) + '"'


def drop_rows(rng, profile, layer):
    """Rows that a step alone needs, so that its prices are derived from others, or there is none."""
    pricer = Pricer(profile, layer)
    group = {kind: (pricer.network[kind], pricer.size[kind]) for kind in pricer.network}
    needed = {"allreduce": {group[kind] for kind in ("mp", "dp", "esp")},
              "allgather": {group[kind] for kind in ("mp", "cp", "esp")},
              "reducescatter": {group[kind] for kind in ("mp", "cp", "esp")}}
    if layer.zero:  # a gather without a row is half of an allreduce
        needed["allreduce"].add(group["edp"])
    for op, kinds in (("allreduce", ("mp-dp", "edp")), ("allgather", ("mp-dp", "edp", "dp")),
                      ("reducescatter", ("mp-dp", "edp"))):
        for kind in kinds:
            if rng.random() < 0.4 and group[kind] not in needed[op]:
                profile.comm = [row for row in profile.comm
                                if row["op"] != op or (row["network"], row["ranks"]) != group[kind]]


def toml_of(layer, model):
    tied = "true" if model["tied"] else "false"
    return f"""schema = 1
name = "drawn-model"
source = "drawn at random"
layers = {model["layers"]}
vocabulary = {model["vocabulary"]}
tied_embedding = {tied}
{model["dense_keys"]}
{model["window_keys"]}
[layer]
batch = {layer.batch}
seq = {layer.seq}
model_dim = {layer.model_dim}
hidden = {layer.hidden}
heads = {layer.heads}
head_dim = {layer.head_dim}
window = {layer.window}
parts = {layer.parts}
first_stage_layers = {model["ends"][0]}
last_stage_layers = {model["ends"][1]}
q_lora_rank = {layer.q_lora_rank}
kv_lora_rank = {layer.kv_lora_rank}
qk_nope_head_dim = {layer.qk_nope_head_dim}
qk_rope_head_dim = {layer.qk_rope_head_dim}
v_head_dim = {layer.v_head_dim}
"""


def check_iteration(tally, answer, profile, layer, model, what):
    """The iteration takes what it takes here. No gradients are sent in backwards, so that all have one degree, but
    dense layers', which have none."""
    model["degrees"] = (answer["degree_forward"], max(backward["degree"] or 1 for backward in answer["backwards"]))
    mine = Iteration(answer["schedule"], profile, layer, model)
    tally.same("iteration of a model", answer["total_s"], makespan(mine.replayed()[1]), what)
    return mine


def check_tasks(tally, answer, mine, what):
    """Starts and ends of all tasks, and how long each lane is busy."""
    start, end = mine.replayed()
    check_passes(tally, answer, mine, start, end, what)
    numbers = {HEAD: mine.model["layers"], EMBEDDING: -1}
    theirs = {(task["name"], task["stage"], task["layer"]): task for task in answer["tasks"]
              if task["phase"] == "step" or task["name"] == "gradient"}
    ours = {(kind, stage, numbers.get(layer, layer)): task for task, (kind, stage, layer) in mine.steps.items()}
    tally.equal("tasks of a step", sorted(theirs), sorted(ours), what)
    for key in theirs.keys() & ours.keys():
        for event, at in (("start_s", start), ("end_s", end)):
            tally.same("starts and ends of a step's tasks", theirs[key][event], at[ours[key]], f"{what}, {key} {event}",
                       absolute=1e-12 * answer["total_s"])
    busy = {}
    for lane, tasks in zip(mine.lanes, mine.orders):
        busy[lane] = sum(end[task] - start[task] for task in tasks)
    for lane in answer["lanes"]:
        tally.same("busy lanes of a model", lane["busy_s"], busy.get((lane["stage"], lane["name"]), 0),
                   f"{what}, lane {lane['name']} of stage {lane['stage']}", absolute=1e-12 * answer["total_s"])


def check_passes(tally, answer, mine, start, end, what):
    """Starts and ends of what micro-batches run, their parts' attention among it."""
    theirs, ours = {}, {}
    for task in answer["tasks"]:
        if task["phase"] == "step" or task["name"] == "gradient":
            continue
        key = (task["name"], task["phase"], task["stage"], task["micro_batch"])
        if task["name"] not in ("send", "recv"):
            key += (task["layer"], task["chunk"])
        theirs.setdefault(key, []).append((task["start_s"], task["end_s"]))
    for task, key in mine.passes.items():
        ours.setdefault(key, []).append((start[task], end[task]))
    count = [{key: len(times) for key, times in listed.items()} for listed in (theirs, ours)]
    tally.equal("tasks of micro-batches", *count, what)
    for key in theirs.keys() & ours.keys():
        for found, expected in zip(sorted(theirs[key]), sorted(ours[key])):
            for one, other, event in zip(found, expected, ("begins", "ends")):
                tally.same("starts and ends of tasks of micro-batches", one, other, f"{what}, {key} {event}",
                           absolute=1e-12 * answer["total_s"])


def check_model(tally, program, seed, rng):
    """Iterations without gradients in backwards take what they take here; all keep to what bounds them.

    Where gradients may be sent in backwards, but none are, micro-batches before the last may have another degree under
    contention, which no answer says.
    """
    profile = questions.random_cluster(rng, TYPES)
    layer, model = random_model(rng, profile)
    cluster = program.write("cluster.toml", questions.toml_of(profile))
    path = "./" + program.write("model.toml", toml_of(layer, model))
    flags = ["simulate", "--cluster", cluster, "--model", path] + questions.flags_of(layer)
    if model["micro_batches"] > 1:
        flags += ["--micro-batches", model["micro_batches"] // layer.parts, "--pipeline", model["pipeline"]]
    if model["chunks"] > 1:
        flags += ["--virtual-stages", model["chunks"]]
    document, error = program.json(flags + ["--schedule", "all"])
    if document is None:
        tally.failures.append(f"seed {seed}: {error}")
        return
    numbers = sorted(model["dense"])
    tally.equal("dense layers of a model", document.get("dense_layers", []), numbers, f"seed {seed}")
    windowed = "".join("0" if n in model["whole"] else "1" for n in range(model["layers"]))
    some = layer.window < layer.seq and "1" in windowed and "0" in windowed
    tally.equal("windowed layers of a model", document.get("windowed_layers"), windowed if some else None,
                f"seed {seed}")
    rebuilt = schedules.AFTER_BACKWARD | (schedules.SPLIT | schedules.BESIDE_DENSE if layer.replicas == 1 else set())
    totals, mines = {}, {}
    for answer in document["schedules"]:
        what = f"seed {seed}, {answer['schedule']} of a model"
        if answer["status"] != "ok":
            continue
        totals[answer["schedule"]] = answer["total_s"]
        tally.at_most("bound of a model", answer["bound_s"], answer["total_s"], what)
        tally.at_most("no decision beats it", answer["at_least_s"], answer["total_s"], what)
        tally.at_most("bound below what no decision beats", answer["bound_s"], answer["at_least_s"], what)
        if answer["schedule"] in rebuilt:
            mines[answer["schedule"]] = check_iteration(tally, answer, profile, layer, model, what)
    for schedule in rng.sample(sorted(mines), min(2, len(mines))):
        answer, _ = program.json(flags + ["--schedule", schedule])
        check_tasks(tally, answer["schedules"][0], mines[schedule], f"seed {seed}, {schedule} of a model")
    for partition in ("step1", "none", "paper"):
        others, _ = program.json(flags + ["--partition", partition, "--schedule", ",".join(sorted(schedules.SPLIT))])
        for answer in (others or {"schedules": []})["schedules"]:
            if answer["status"] != "ok":
                continue
            what = f"seed {seed}, {answer['schedule']} of a model, partition {partition}"
            tally.at_most(f"exact partition against {partition}", totals[answer["schedule"]], answer["total_s"], what)
            if partition == "none" and layer.replicas > 1 and (model["micro_batches"] == 1 or not profile.contention):
                check_tasks(tally, answer, check_iteration(tally, answer, profile, layer, model, what), what)
