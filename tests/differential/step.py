"""docs/metrics.md "modelbench", its step: what an iteration has behind its backwards, and what that takes.

A stage sums gates' and norms' gradients over all its ranks at once, then those of its dense weights over DP, each
layer's experts over EDP. A layer's optimizer waits for the sums of its gradients and for the attentions that make
what nobody sums; with ZeRO 1 AllGathers of the weights follow, over the ranks that share their states out.
"""
import volumes
from flows import dense_gradient_bytes, dense_layer_gradient_bytes

HEAD, EMBEDDING = "head", "embedding"  # ends, as layers


def sum_element(layer):
    """The type that gradients are summed in: 16 bits as float32."""
    return 8 if layer.dtype == "float64" else 4


def gate_parameters(layer):
    """gshard: logits and their spread; xmoe: a projection, an embedding an expert, a temperature; softmoe: a vector a
    row; the others one an expert."""
    dim, experts = layer.model_dim, layer.experts
    if layer.gate == "gshard":
        return 2 * dim * experts
    if layer.gate == "xmoe":
        width = min(dim, max(16, experts // 2))
        return width * dim + width * experts + 1
    return dim * experts * (max(1, int(volumes.rows_of(layer, 1, 1))) if layer.gate == "softmoe" else 1)


def alike_elements(layer, has_gate=True):
    """The gate, and the two norms' scales."""
    return (gate_parameters(layer) if has_gate else 0) + (0 if layer.norm == "none" else 2 * layer.model_dim)


def expert_bytes(layer):
    return layer.gemms * layer.model_dim * layer.hidden // layer.esp * layer.local_experts * layer.element


def end_bytes(layer, vocabulary):
    """Bytes of the ends on the rank that has most of the vocabulary."""
    return -(-vocabulary // layer.mp) * layer.model_dim * layer.element


class StepPricer:
    """Seconds of a step's tasks; what has no row is derived from others or takes no time."""

    def __init__(self, pricer):
        self.p, self.profile, self.layer = pricer, pricer.profile, pricer.layer

    def adamw(self, dense, experts):
        """Copies half of what it reads (gradient, weight, two moments) and writes (all but the gradient). 16 bits have
        float32 weights and moments, and are written beside them. With ZeRO 1 a rank has its share."""
        layer = self.layer
        if layer.zero:
            dense, experts = dense / layer.dp, experts / layer.edp
        wide = sum_element(layer)
        moved = layer.element + 3 * wide + 3 * wide + (layer.element if layer.element < wide else 0)
        copied = self.profile.copied(moved / 2 * (dense + experts))
        return copied + self.profile.task_s


class Step:
    """The step's tasks of one stage, behind its last backward."""

    def __init__(self, iteration, stage, layers):
        self.i, self.stage, self.layer = iteration, stage, iteration.layer
        self.prices = StepPricer(iteration.pricer)
        self.layers = layers  # numbers, last to first
        self.sums = {layer: [] for layer in layers}
        self.add_sums()
        self.add_steps()

    def dense_of(self, number):
        """Bytes of gradients that DP sums: attention's, and the shared expert's or the dense feed-forward's."""
        if number in self.i.model["dense"]:
            return dense_layer_gradient_bytes(self.layer, self.i.model["dense_hidden"])
        return dense_gradient_bytes(self.layer)

    def alike_of(self, number):
        """Elements of a layer that all ranks of the stage hold alike."""
        return alike_elements(self.layer, number not in self.i.model["dense"])

    def experts_of(self, number):
        return 0 if number in self.i.model["dense"] else expert_bytes(self.layer)

    def add(self, kind, layer, group, seconds, after):
        """Of a group on its network, else computed."""
        network = self.prices.p.network[group] if group else "compute"
        task = self.i.add(self.stage, self.i.comm_lane(group) if group else "compute", seconds, after, network)
        self.i.steps[task] = (kind, self.stage, layer)
        return task

    def ends(self):
        """In the order in which their gradients are summed. Plans know ends by their sums: without DP none."""
        layer, vocabulary = self.layer, self.i.model["vocabulary"]
        last = self.stage == layer.pp - 1 and not (self.i.model["tied"] and layer.pp == 1)
        ends = ([HEAD] if last else []) + ([EMBEDDING] if self.stage == 0 else [])
        return {end: end_bytes(layer, vocabulary) for end in ends} if layer.dp > 1 else {}

    def made(self, kind, layer):
        """Where a backward is in halves, the second makes the weights' gradients."""
        return self.i.made.get((kind + "_dw", layer)) or self.i.made[kind, layer]

    def sum(self, kind, group, size, after, of):
        """One task over a group whose result these layers or ends wait for."""
        if self.prices.p.size[group] == 1:
            return
        label = min((layer for layer in self.layers if layer in of), default=None)
        task = self.add(kind, label, group, self.prices.p.collective("allreduce", group, size), after)
        for layer in of:
            self.sums.setdefault(layer, []).append(task)

    def add_sums(self):
        alike = [number for number in self.layers if self.alike_of(number)]
        if alike:
            made = [t for layer in alike for t in self.made("attention", layer)]
            size = sum(self.alike_of(number) for number in alike) * sum_element(self.layer)
            self.sum("stage_gradient", "mp-dp", size, made, alike)
        ends = self.ends()
        dense = sum(self.dense_of(number) for number in self.layers) + sum(ends.values())
        last = self.i.made.get(("attention_dw", self.layers[-1]), [])
        last = last + self.i.outputs[self.stage, self.i.model["micro_batches"] - 1, True]
        self.sum("gradient", "dp", dense, last, self.layers + list(ends))
        for layer in self.layers:
            if not self.experts_of(layer):
                continue
            self.sum("expert_gradient", "edp", self.experts_of(layer), self.made("expert", layer), [layer])

    def add_steps(self):
        layer, element = self.layer, self.layer.element
        ends, steps = self.ends(), {}
        for number in self.layers:
            dense = self.dense_of(number) / element + self.alike_of(number)
            seconds = self.prices.adamw(dense, self.experts_of(number) / element)
            steps[number] = self.optimizer(number, seconds, self.sums[number] + self.made("attention", number))
        for end, size in ends.items():
            steps[end] = self.optimizer(end, self.prices.adamw(size / element, 0), self.sums[end])
        if not layer.zero:
            return
        for number in self.layers:
            self.gather("weights", "dp", self.dense_of(number), [steps[number]], number)
            if self.experts_of(number):
                self.gather("expert_weights", "edp", self.experts_of(number), [steps[number]], number)
        size = sum(self.alike_of(number) for number in self.layers) * sum_element(layer)
        self.gather("stage_weights", "dp", size, [steps[number] for number in self.layers], self.layers[-1])
        for end, size in ends.items():
            self.gather("stage_weights", "dp", size, [steps[end]], end)

    def optimizer(self, number, seconds, after):
        return self.add("optimizer", number, None, seconds, after)

    def gather(self, kind, group, size, after, number):
        if self.prices.p.size[group] > 1:
            self.add(kind, number, group, self.prices.p.collective("allgather", group, size), after)
