"""Spec sections 1, 5 and 6, docs/tuning.md: a whole model's iteration over micro-batches and pipeline stages.

A stage runs blocks: the forward or the backward of one micro-batch through its layers. GPipe runs all forwards first,
1F1B as many as stages follow, then one backward after one forward. A send takes the time of the exchange on its
sender's lane; its receive waits for it in the receiver's queue. Schedules that send gradients after the backward send
those of a stage's layers, and of its embedding or output projection, at once after its last block.
"""
import groups
import questions
import schedules
from flows import Pricer, dense_gradient_bytes
from replay import makespan, replay

TYPES = ("float32", "bfloat16")


def blocks(stages, stage, micro_batches, pipeline):
    """(micro-batch, backward?) in the order of a stage."""
    if pipeline == "gpipe":
        return [(m, False) for m in range(micro_batches)] + [(m, True) for m in range(micro_batches)]
    ahead = min(stages - 1 - stage, micro_batches)
    order = [(m, False) for m in range(ahead)]
    for m in range(micro_batches):
        if m + ahead < micro_batches:
            order.append((m + ahead, False))
        order.append((m, True))
    return order


class Iteration:
    """All stages' lanes in one plan."""

    def __init__(self, schedule, profile, layer, model):
        self.schedule, self.profile, self.layer, self.model = schedule, profile, layer, model
        self.lanes, self.orders, self.after, self.seconds = [], [], [], []
        self.outputs = {}  # (stage, micro-batch, backward?) -> tasks that end the block
        self.recvs = []
        stages = layer.pp
        count, more = divmod(model["layers"], stages)
        for stage in range(stages):
            layers = count + (1 if stage < more else 0)
            for micro_batch, backward in blocks(stages, stage, model["micro_batches"], model["pipeline"]):
                self.block(stage, layers, micro_batch, backward)
            self.gradients(stage, layers)
        for recv, sender in self.recvs:
            self.after[recv] = list(self.outputs[sender])

    def lane(self, stage, name):
        if (stage, name) not in self.lanes:
            self.lanes.append((stage, name))
            self.orders.append([])
        return self.orders[self.lanes.index((stage, name))]

    def add(self, stage, lane, seconds, after):
        self.after.append(list(after))
        self.seconds.append(seconds)
        self.lane(stage, lane).append(len(self.seconds) - 1)
        return len(self.seconds) - 1

    def comm_lane(self, kind):
        return "comm" if self.schedule in schedules.ONE_LANE else groups.network(
            self.layer, kind, self.profile.ranks_per_node)

    def block(self, stage, layers, micro_batch, backward):
        last = self.layer.pp - 1
        after = []
        if backward and stage == last:
            after = self.outputs[stage, micro_batch, False]
        elif stage != (last if backward else 0):
            after = [self.add(stage, self.comm_lane("pp"), 0.0, [])]
            sender = stage + 1 if backward else stage - 1
            self.recvs.append((after[0], ("sent", sender, micro_batch, backward)))
        for _ in range(layers):
            after = self.phase(stage, backward, after)
        self.outputs[stage, micro_batch, backward] = after
        if stage != (0 if backward else last):
            size = self.layer.tokens * self.layer.model_dim * self.layer.element
            if schedules.FLOW.get(self.schedule, "sharded") == "sharded":
                size /= self.layer.mp  # the others have all tokens of their MP group between layers
            network = groups.network(self.layer, "pp", self.profile.ranks_per_node)
            seconds = self.profile.collective("sendrecv", network, 2, size)
            sent = self.add(stage, self.comm_lane("pp"), seconds, after)
            self.outputs["sent", stage, micro_batch, backward] = [sent]

    def phase(self, stage, backward, after):
        """The layer's tasks behind what is on the lanes; returns those that nothing of the layer follows."""
        degree = self.model["degrees"][1 if backward else 0]
        other = self.model["degrees"][0 if backward else 1]
        tasks = schedules.phase(self.schedule, self.profile, self.layer, backward, (degree, other), gradients=False)
        base = len(self.seconds)
        followed = {a for waits in tasks.after for a in waits}
        for task in range(len(tasks.kind)):
            waits = [base + a for a in tasks.after[task]] or after
            self.add(stage, tasks.lanes[tasks.lane[task]], tasks.seconds[task], waits)
        return [base + task for task in range(len(tasks.kind)) if task not in followed]

    def gradients(self, stage, layers):
        layer, model = self.layer, self.model
        if layer.dp == 1:
            return
        ends = (1 if stage == 0 else 0) + (1 if stage == layer.pp - 1 else 0)
        if ends == 2 and model["tied"]:
            ends = 1
        size = layers * dense_gradient_bytes(layer)
        size += ends * model["vocabulary"] * layer.model_dim * layer.element / layer.mp
        lane = self.comm_lane("dp")
        last = self.outputs[stage, model["micro_batches"] - 1, True]
        self.add(stage, lane, Pricer(self.profile, layer).collective("allreduce", "dp", size), last)

    def total(self):
        return makespan(replay(self.orders, self.after, self.seconds)[1])


def random_model(rng, profile):
    ranks = profile.nodes * profile.ranks_per_node
    stages = rng.choice([d for d in questions.divisors(ranks) if d <= 4])
    layer = questions.random_layer(rng, profile, pp=stages, dtype=rng.choice(TYPES))
    layer.rounding = "ragged"
    model = {"layers": stages * rng.randint(1, 3) + rng.randint(0, stages - 1), "vocabulary": 64 * layer.mp,
             "tied": rng.random() < 0.5, "micro_batches": rng.randint(1, 5), "pipeline": rng.choice(["gpipe", "1f1b"])}
    return layer, model


def toml_of(layer, model):
    tied = "true" if model["tied"] else "false"
    return f"""schema = 1
name = "drawn-model"
source = "drawn at random"
layers = {model["layers"]}
vocabulary = {model["vocabulary"]}
tied_embedding = {tied}
[layer]
batch = {layer.batch}
seq = {layer.seq}
model_dim = {layer.model_dim}
hidden = {layer.hidden}
heads = {layer.heads}
"""


def check_model(tally, program, seed, rng):
    profile = questions.random_cluster(rng, TYPES)
    profile.task_s = 0  # what the ends and the optimizer are made of has no page
    layer, model = random_model(rng, profile)
    cluster = program.write("cluster.toml", questions.toml_of(profile))
    path = "./" + program.write("model.toml", toml_of(layer, model))
    flags = ["simulate", "--cluster", cluster, "--model", path] + questions.flags_of(layer)
    if model["micro_batches"] > 1:
        flags += ["--micro-batches", model["micro_batches"], "--pipeline", model["pipeline"]]
    document, error = program.json(flags)
    if document is None:
        tally.failures.append(f"seed {seed}: {error}")
        return
    totals = {}
    for answer in document["schedules"]:
        what = f"seed {seed}, {answer['schedule']} of a model"
        if answer["status"] != "ok":
            continue
        totals[answer["schedule"]] = answer["total_s"]
        tally.at_most("bound of a model", answer["bound_s"], answer["total_s"], what)
        tally.at_most("no decision beats it", answer["at_least_s"], answer["total_s"], what)
        tally.at_most("bound below what no decision beats", answer["bound_s"], answer["at_least_s"], what)
        if answer["schedule"] in schedules.AFTER_BACKWARD:
            degrees = {backward["degree"] for backward in answer["backwards"]}
            if len(degrees) == 1:
                model["degrees"] = (answer["degree_forward"], degrees.pop())
                mine = Iteration(answer["schedule"], profile, layer, model).total()
                tally.same("iteration of a model", answer["total_s"], mine, what)
    for partition in ("step1", "none", "paper"):
        others, _ = program.json(flags + ["--partition", partition, "--schedule", "fsmoe,fsmoe-no-iio"])
        for answer in (others or {"schedules": []})["schedules"]:
            if answer["status"] == "ok":
                tally.at_most(f"exact partition against {partition}", totals[answer["schedule"]], answer["total_s"],
                              f"seed {seed}, {answer['schedule']} of a model")
