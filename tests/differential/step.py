"""docs/metrics.md "modelbench", its step: what an iteration has behind its backwards, and what that takes.

A stage sums gates' and norms' gradients over all its ranks at once, then those of its dense weights over DP, each
layer's experts over EDP. A layer's optimizer waits for the sums of its gradients and for the attentions that make
what nobody sums; with ZeRO 1 AllGathers of the weights follow, over the ranks that share their states out.
"""
import groups
import volumes
from flows import dense_gradient_bytes, dense_layer_gradient_bytes, latent_weights

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
    """The gate, the two norms' scales, and what makes the latents of latent attention with their norms' scales."""
    latent = sum(latent_weights(layer)) + layer.q_lora_rank + layer.kv_lora_rank
    return (gate_parameters(layer) if has_gate else 0) + (0 if layer.norm == "none" else 2 * layer.model_dim) + latent


def expert_bytes(layer):
    return layer.gemms * layer.model_dim * layer.hidden // layer.esp * layer.local_experts * layer.element


def end_bytes(layer, rows):
    """Bytes of an end on the rank that has most of its rows: tokens of the vocabulary, learned places."""
    return sum(-(-count // layer.mp) for count in rows) * layer.model_dim * layer.element


class StepPricer:
    """Seconds of a step's tasks; what has no row is derived from others or takes no time."""

    def __init__(self, pricer):
        self.p, self.profile, self.layer = pricer, pricer.profile, pricer.layer

    def adamw(self, dense, experts):
        """Copies half of what it reads (gradient, weight, two moments) and writes (all but the gradient). 16 bits have
        float32 weights and moments, and are written beside them. With ZeRO 1 a rank has its share."""
        layer = self.layer
        if layer.zero:
            dense, experts = dense / layer.replicas, experts / layer.edp
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
        network = groups.network(self.layer, group, self.i.profile.ranks_per_node) if group else "compute"
        task = self.i.add(self.stage, self.i.comm_lane(group) if group else "compute", seconds, after, network)
        self.i.steps[task] = (kind, self.stage, layer)
        return task

    def ends(self):
        """Bytes that DP sums, in the order in which they are. Tied on one stage, the projection is the embedding."""
        layer, vocabulary, ends = self.layer, self.i.model["vocabulary"], {}
        if self.stage == layer.pp - 1:
            ends[HEAD] = 0 if self.i.model["tied"] and layer.pp == 1 else end_bytes(layer, [vocabulary])
        if self.stage == 0:
            ends[EMBEDDING] = end_bytes(layer, [vocabulary, layer.seq])
        return ends

    def norm_bytes(self, end):
        """The norm before the output projection, which all ranks of a stage hold alike."""
        return self.layer.model_dim * self.layer.element if end == HEAD and self.layer.norm != "none" else 0

    def made_beside(self, end):
        """Ends' gradients are there with those of the layer beside them."""
        return self.made("attention", self.layers[0] if end == HEAD else self.layers[-1])

    def made(self, kind, layer):
        """Where a backward is in halves, the second makes the weights' gradients. So does what attention has apart."""
        made = self.i.made.get((kind + "_dw", layer)) or self.i.made[kind, layer]
        return made + self.i.made.get(("keys_values", layer), []) if kind == "attention" else made

    def sum(self, kind, group, size, after, of):
        """One task over a group whose result these layers or ends wait for."""
        if self.prices.p.size[group] == 1:
            return
        label = min((layer for layer in self.layers if layer in of), default=of[0])
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
        last = last + self.i.outputs[self.stage, self.i.model["micro_batches"] - self.layer.parts, True]
        self.sum("gradient", "dp", dense, last, self.layers + list(ends))
        for layer in self.layers:
            if not self.experts_of(layer):
                continue
            self.sum("expert_gradient", "edp", self.experts_of(layer), self.made("expert", layer), [layer])
        for end in ends:
            if self.norm_bytes(end):
                self.sum("stage_gradient", "mp-dp", self.norm_bytes(end), self.made_beside(end), [end])
        if self.i.model["tied"] and self.layer.pp > 1:
            for end in ends:
                self.sum_tied(end)

    def sum_tied(self, end):
        """Each end sends the other its own, once each has all of its gradients."""
        seconds = self.prices.p.collective("sendrecv", "pp", end_bytes(self.layer, [self.i.model["vocabulary"]]))
        own = self.sums.get(end, []) + self.made_beside(end)
        task = self.add("tied_gradient", end, "pp", seconds, own)
        self.sums.setdefault(end, []).append(task)
        self.i.tied.append((task, own))

    def add_steps(self):
        layer, element = self.layer, self.layer.element
        ends, steps = self.ends(), {}
        for number in self.layers:
            dense = self.dense_of(number) / element + self.alike_of(number)
            seconds = self.prices.adamw(dense, self.experts_of(number) / element)
            steps[number] = self.optimizer(number, seconds, self.sums[number] + self.made("attention", number))
        for end, size in ends.items():
            seconds = self.prices.adamw((size + self.norm_bytes(end)) / element, 0)
            steps[end] = self.optimizer(end, seconds, self.sums.get(end, []) + self.made_beside(end))
        if not layer.zero:
            return
        for number in self.layers:
            self.gather("weights", "dp", self.dense_of(number), [steps[number]], number)
            if self.experts_of(number):
                self.gather("expert_weights", "edp", self.experts_of(number), [steps[number]], number)
        size = sum(self.alike_of(number) for number in self.layers) * sum_element(layer)
        self.gather("stage_weights", "dp", size, [steps[number] for number in self.layers], self.layers[-1])
        for end, size in ends.items():
            self.gather("stage_weights", "dp", size + self.norm_bytes(end), [steps[end]], end)

    def optimizer(self, number, seconds, after):
        return self.add("optimizer", number, None, seconds, after)

    def gather(self, kind, group, size, after, number):
        if self.prices.p.size[group] > 1:
            self.add(kind, number, group, self.prices.p.collective("allgather", group, size), after)
