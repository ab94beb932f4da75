"""What follows what in one layer, forward and backward, and what each task costs.

A flow is how rows travel; FSMoE's, Tutel's and Lina's is `sharded`, Parm's baseline `replicated`, its S1 `fused`, its
S2 `fused-gated`, MoNTA's baseline `tensor` and its O1 to O3 `dropped`. A collective over one rank is no task: what
waits for it waits for what it would have waited for.
"""
import groups
import volumes
from collectives import Collectives


class Tasks:
    """The tasks of a phase, in the order in which they go to their lanes."""

    def __init__(self, lanes):
        self.kind, self.chunk, self.seconds, self.after, self.lane = [], [], [], [], []
        self.networks, self.groups = [], []
        self.orders = [[] for _ in lanes]
        self.lanes = lanes

    def add(self, kind, chunk, lane, seconds, after, network=None, group=None):
        task = len(self.kind)
        self.kind.append(kind)
        self.chunk.append(chunk)
        self.seconds.append(seconds)
        self.after.append(sorted(set(after)))
        self.lane.append(self.lanes.index(lane))
        self.networks.append(network)
        self.groups.append(group)
        self.orders[self.lanes.index(lane)].append(task)
        return [task]


class Pricer:
    """Seconds of a layer's tasks on a profile."""

    def __init__(self, profile, layer):
        self.profile, self.layer = profile, layer
        self.network = {kind: groups.network(layer, kind, profile.ranks_per_node)
                        for kind in ("mp", "dp", "cp", "ep", "esp", "edp", "ep-esp", "mp-dp")}
        self.size = {kind: size for kind, (size, _) in groups.strides(layer).items()}
        self.collectives = Collectives(profile, groups.of(layer, profile.ranks_per_node),
                                       groups.spreads(layer, profile.ranks_per_node))

    def collective(self, op, group, size):
        """Every layer's collective has a price; a step's may have none, and then takes no time."""
        return (self.collectives.seconds(op, group, size) or 0.0) + self.profile.task_s

    def ring_send(self, size):
        """A block's send to the next rank; without a price of sends, a step of an AllGather of all blocks."""
        seconds = self.collectives.seconds("sendrecv", "cp", size)
        if seconds is None:
            ranks = self.layer.cp
            seconds = self.collectives.seconds("allgather", "cp", ranks * size) / (ranks - 1)
            self.collectives.met["a step of a ring"] += 1
        return seconds + self.profile.task_s

    def attention(self, backward, kind="attention"):
        """Selective recomputation repeats the scores: the part of the forward that they are of its FLOPs.

        Halves of a backward have as much of its alpha as of its GEMMs: dW one for each of q, k, v and out. With context
        parallelism keys and values are a task of their own.
        """
        if self.layer.blocks:
            return self.ring(backward, kind)
        layer = self.layer
        forward, scores = attention_flops(layer), scores_flops(layer)
        pair = keys_values_flops(layer) if layer.cp > 1 else 0  # and two GEMMs, in a backward as many for each half
        two = 2 if layer.cp > 1 else 0
        weights = len(sharded_weights(layer)) + len(latent_weights(layer))
        whole = weights + 2  # GEMMs of a forward
        if backward:
            gemms, flops = {"attention": (2 * whole - 2 * two, 2 * (forward - pair)),
                            "keys_values": (2 * two, 2 * pair),
                            "attention_dx": (2 * whole - weights - two, forward + scores - pair),
                            "attention_dw": (weights - two, forward - scores - pair)}[kind]
        else:
            gemms, flops = (two, pair) if kind == "keys_values" else (whole - two, forward - pair)
        again = 0
        if backward and kind in ("attention", "attention_dx") and layer.recompute != "none":
            again = scores / (forward - pair) * (self.attention(False) - self.profile.task_s)
        row = self.profile.module("attention", backward, layer.seq)
        if row:
            alpha = row["alpha_s"] * (gemms / (2 * whole if backward else whole))
            return again + alpha + flops * row["beta_s_per_flop"] + self.profile.task_s
        return again + self.profile.gemm(layer.dtype, gemms, flops)

    def ring(self, backward, kind):
        """Attention in a ring: a GEMM for out, which halves share; one for each other weight, before the heads; for the
        heads with a block two, scores and their product with the values, which a backward always repeats.
        """
        layer = self.layer
        forward, scores = attention_flops(layer), scores_flops(layer)
        weights = len(sharded_weights(layer)) + len(latent_weights(layer))
        out = 2 * layer.tokens * most_heads(layer)[0] * layer.value_width * layer.model_dim
        times = 2 if backward and not kind.startswith("attention_d") else 1
        gemms, flops = {"keys_values": (weights - 1, forward - scores - out),
                        "heads": (2, scores / layer.blocks)}.get(kind, (1, out))
        again = self.ring(False, "heads") - self.profile.task_s if backward and kind == "heads" else 0
        row = self.profile.module("attention", backward, layer.seq)
        if row:
            alpha = row["alpha_s"] * times * gemms / ((weights + 2) * (2 if backward else 1))
            return again + alpha + times * flops * row["beta_s_per_flop"] + self.profile.task_s
        return again + self.profile.gemm(layer.dtype, times * gemms, times * flops)

    def gate(self, backward, tokens):
        layer = self.layer
        flops = 2 * tokens * layer.model_dim * layer.experts * (2 if backward else 1)
        return self.profile.gemm(layer.dtype, 2 if backward else 1, flops)

    def expert(self, backward, rows, times=1):
        """rows of T_rank; every rank of EP and ESP sends as many, its H is sharded over ESP."""
        layer = self.layer
        work = layer.experts * rows * layer.model_dim * layer.hidden * times
        return self._expert(backward, 2 * layer.gemms * work)

    def half_expert(self, rows):
        """dX or dW: each has half of the backward's GEMMs."""
        return (self.expert(True, rows) - self.profile.task_s) / 2 + self.profile.task_s

    def shared(self, backward):
        layer = self.layer
        work = layer.tokens * layer.model_dim * layer.shared_hidden / layer.mp
        return self._expert(backward, 2 * layer.gemms * work)

    def ffn(self, backward, hidden):
        """A dense feed-forward, its hidden size sharded over MP: priced as an expert that has all tokens."""
        layer = self.layer
        return self._expert(backward, 2 * layer.gemms * layer.tokens * layer.model_dim * hidden / layer.mp)

    def _expert(self, backward, flops):
        """alpha_exp = g alpha_gemm, whatever the experts of a rank: their GEMMs are grouped."""
        layer, twice = self.layer, 2 if backward else 1
        return self.profile.expert(layer.dtype, layer.ffn, backward, twice * layer.gemms, twice * flops)

    def moved(self, size):
        """Sums and re-layouts: a copy, where copies have a price, else nothing."""
        copy = self.profile.copy(size)
        return self.profile.task_s if copy is None else copy

    def ordered(self):
        """order and i-order cost nothing where no module prices them."""
        return self.profile.task_s


def most_heads(layer):
    """Heads of the rank that has most, and its key-value heads.

    Heads that share keys and values stay together, unless there are fewer of those than ranks.
    """
    kv_heads = -(-layer.kv_heads // layer.mp)
    together = layer.heads // layer.kv_heads
    heads = kv_heads * together if layer.kv_heads >= layer.mp else -(-layer.heads // layer.mp)
    return heads, kv_heads


def sharded_weights(layer):
    """Elements of each of the weights of attention that MP ranks share out: q, k, v and out; of latent attention
    those that make queries, then keys and values, of a latent, and out."""
    heads, kv_heads = most_heads(layer)
    if layer.kv_lora_rank:
        return [(layer.q_lora_rank or layer.model_dim) * heads * (layer.qk_nope_head_dim + layer.qk_rope_head_dim),
                layer.kv_lora_rank * heads * (layer.qk_nope_head_dim + layer.v_head_dim),
                heads * layer.v_head_dim * layer.model_dim]
    return [layer.model_dim * count * layer.head_width for count in (heads, kv_heads, kv_heads, heads)]


def latent_weights(layer):
    """Likewise, of those that make latents and the rotary key of a token: every rank has them whole."""
    if not layer.kv_lora_rank:
        return []
    of_keys = layer.model_dim * (layer.kv_lora_rank + layer.qk_rope_head_dim)
    return [of_keys] + ([layer.model_dim * layer.q_lora_rank] if layer.q_lora_rank else [])


def projections(layer):
    return sum(sharded_weights(layer))


def attention_flops(layer):
    return 2 * layer.tokens * (projections(layer) + sum(latent_weights(layer))) + scores_flops(layer)


def scores_flops(layer):
    """Scores, and their product with the values: a causal half counts twice, as a whole square. A part of samples has
    its own square and, of the parts before, whole ones that count twice."""
    tokens = layer.seq // layer.parts
    first = layer.part * tokens
    pairs = tokens * (2 * first + tokens)
    if layer.window:
        pairs = min(pairs, 2 * sum(min(place + 1, layer.window) for place in range(first, first + tokens)))
    columns = most_heads(layer)[0] * (layer.head_width + layer.value_width)
    return 2 * layer.tokens * pairs / tokens * columns


def keys_values(layer):
    """Columns of keys and values on the rank that has most heads."""
    return most_heads(layer)[1] * (layer.head_width + layer.value_width)


def keys_values_flops(layer):
    if not layer.kv_lora_rank:
        return 2 * layer.tokens * layer.model_dim * keys_values(layer)
    down = layer.model_dim * (layer.kv_lora_rank + layer.qk_rope_head_dim)
    up = layer.kv_lora_rank * most_heads(layer)[0] * (layer.qk_nope_head_dim + layer.v_head_dim)
    return 2 * layer.tokens * (down + up)


def dense_gradient_bytes(layer):
    shared = layer.gemms * layer.model_dim * layer.shared_hidden / layer.mp
    return round(projections(layer) + shared) * layer.element


def dense_layer_gradient_bytes(layer, hidden):
    """Gradients of a layer with a dense feed-forward of that hidden size in the place of its experts."""
    return round(projections(layer) + layer.gemms * layer.model_dim * hidden / layer.mp) * layer.element


def dense_layer(pricer, tasks, flow, backward, hidden, one_lane, halves):
    """The dense part, twice: attention and a feed-forward whose shards over MP are summed up alike.

    Where ranks have tokens of their own an AllGather brings them together before, a ReduceScatter takes them apart
    behind; else all of them are there, and an AllReduce sums. The backward runs the two the other way round, and
    attention in halves where a schedule has them.
    """
    blm = pricer.layer.tokens * pricer.layer.model_dim * pricer.layer.element

    def collective(kind, op, after, group="mp", size=blm):
        if pricer.size[group] == 1:
            return after
        lane = "comm" if one_lane else pricer.network[group]
        return tasks.add(kind, 0, lane, pricer.collective(op, group, size), after, pricer.network[group], group)

    def compute(kind, seconds, after, chunk=0):
        return tasks.add(kind, chunk, "compute", seconds, after)

    def gather(kind, op, after):
        return collective(kind, op, after, "cp", context_bytes(pricer.layer))

    def send(kind, after, chunk):
        lane = "comm" if one_lane else pricer.network["cp"]
        seconds = pricer.ring_send(context_bytes(pricer.layer) / pricer.layer.cp)
        return tasks.add(kind, chunk, lane, seconds, after, pricer.network["cp"], "cp")

    kind = "attention_dx" if halves else "attention"
    parts = [(kind, "mp", pricer.attention(backward, kind)), ("ffn", "ffn", pricer.ffn(backward, hidden))]
    after = []
    for kind, name, seconds in reversed(parts) if backward else parts:
        if flow == "sharded":
            after = collective(name + "_allgather", "allgather", after)
        if kind == "ffn":
            after = made = compute(kind, seconds, after)
        else:
            after = made = attend(pricer, kind, backward, after, compute, gather, send)
        summed = ("_reducescatter", "reducescatter") if flow == "sharded" else ("_allreduce", "allreduce")
        after = collective(name + summed[0], summed[1], after)
    if halves:
        tasks.add("attention_dw", 0, "compute", pricer.attention(True, "attention_dw"), made)


def context_bytes(layer):
    """Keys and values of whole samples."""
    return layer.batch * layer.seq * keys_values(layer) * layer.element


def attend(pricer, kind, backward, after, compute, gather, send):
    """Attention. Ranks that share samples gather keys and values before it, and sum their gradients up behind it."""
    shares = pricer.layer.cp > 1
    if pricer.layer.blocks:
        return attend_in_ring(pricer, kind, backward, after, compute, send)
    if shares and not backward:
        after = compute("keys_values", pricer.attention(False, "keys_values"), after)
        after = gather("cp_allgather", "allgather", after)
    after = compute(kind, pricer.attention(backward, kind), after)
    if shares and backward:
        after = gather("cp_reducescatter", "reducescatter", after)
        after = compute("keys_values", pricer.attention(True, "keys_values"), after)
    return after


def attend_in_ring(pricer, kind, backward, after, compute, send):
    """Heads take a block of keys and values each, the rank's own first, then what the rank before sends. Two blocks of
    others are there at a time: one comes where the last but one was. In a backward what a block's heads make goes on
    with what came with it, from the block's rank round to it, and has two places likewise.
    """
    blocks = pricer.layer.blocks
    if not backward:
        after = compute("keys_values", pricer.attention(False, "keys_values"), after)
    else:
        after = compute(kind, pricer.attention(True, kind), after)
    came, heads, gone = [after], [], []  # by block: it is there; its heads are done; its gradients are with the next

    def pass_on(block):
        gone.append(send("cp_gradient_send", heads[block] + (gone[-1] if gone else []), block))

    for block in range(blocks):
        if block + 1 < blocks:
            free = heads[block - 1] if block > 1 else []
            came.append(send("cp_send", came[block] + free, block))
        if backward and block:
            pass_on(block - 1)
        free = gone[block - 2] if backward and block > 1 else []
        heads.append(compute("heads", pricer.attention(backward, "heads"),
                             came[block] + free + (heads[-1] if heads else []), block))
    if not backward:
        return compute("attention", pricer.attention(False), heads[-1])
    pass_on(blocks - 1)
    return compute("keys_values", pricer.attention(True, "keys_values"), gone[-1])


class Flow:
    """Builds the tasks of one phase. Subclasses of the order: see schedules.py."""

    def __init__(self, name, pricer, tasks, backward, chunk_rows, one_lane):
        self.name, self.p, self.t, self.backward = name, pricer, tasks, backward
        self.rows, self.one_lane = chunk_rows, one_lane
        self.layer = pricer.layer
        self.halves = False
        self.step = self.layer.experts * self.layer.model_dim * self.layer.element  # bytes of a row of each expert
        self.total = self.step * sum(chunk_rows)
        self.blm = self.layer.tokens * self.layer.model_dim * self.layer.element
        self.done = {}  # (kind, chunk) -> what waits for it waits for these

    # -- what any flow is made of --

    def lane_of(self, group):
        return "comm" if self.one_lane else self.p.network[group]

    def collective(self, kind, op, group, size, after, chunk=0, lane=None):
        if self.p.size[group] == 1:
            return after
        return self.t.add(kind, chunk, lane or self.lane_of(group), self.p.collective(op, group, size), after,
                          self.p.network[group], group)

    def compute(self, kind, seconds, after, chunk=0):
        return self.t.add(kind, chunk, "compute", seconds, after)

    def gather(self, kind, op, after):
        return self.collective(kind, op, "cp", context_bytes(self.layer), after)

    def send(self, kind, after, chunk):
        seconds = self.p.ring_send(context_bytes(self.layer) / self.layer.cp)
        return self.t.add(kind, chunk, self.lane_of("cp"), seconds, after, self.p.network["cp"], "cp")

    # -- before and after the rows travel --

    def head(self):
        """Forward: the dense part, gate and order; backward: what is before the first AlltoAll."""
        after = []
        name = self.name
        if self.backward:
            if name == "replicated":
                after = self.collective("tokens_allgather", "allgather", "esp", self.blm * self.layer.esp, after)
            after = self.compute("i_order", self.p.ordered(), after)
        else:
            if name == "sharded":
                after = self.collective("mp_allgather", "allgather", "mp", self.blm, after)
            after = attend(self.p, "attention", False, after, self.compute, self.gather, self.send)
            if name == "sharded":
                after = self.collective("mp_reducescatter", "reducescatter", "mp", self.blm, after)
            else:
                after = self.collective("mp_allreduce", "allreduce", "mp", self.blm, after)
            if name == "replicated":
                after = self.collective("tokens_allgather", "allgather", "esp", self.blm * self.layer.esp, after)
            after = self.compute("gate", self.p.gate(False, self.gate_tokens()), after)
            after = self.compute("order", self.p.ordered(), after)
        self.ready = after

    def gate_tokens(self):
        layer = self.layer
        if self.name in ("sharded", "fused"):
            return layer.tokens / layer.mp
        return layer.tokens * (layer.esp if self.name == "replicated" else 1)

    def shared_begin(self, in_sequence=False):
        self.shared_done = []
        if not self.layer.shared_hidden:
            return
        after = self.ready
        if self.name in ("sharded", "fused"):
            after = self.collective("shared_allgather", "allgather", "mp", self.blm, after)
        self.shared_made = self.compute("shared", self.p.shared(self.backward), after)
        if in_sequence:
            self.shared_end()
            self.ready = self.shared_done

    def shared_end(self):
        if not self.layer.shared_hidden:
            return
        if self.name in ("sharded", "fused"):
            self.shared_done = self.collective("shared_reducescatter", "reducescatter", "mp", self.blm,
                                               self.shared_made)
        else:
            self.shared_done = self.collective("shared_allreduce", "allreduce", "mp", self.blm, self.shared_made)

    def tail(self, gradient_beside_dense=None):
        """Forward: i-order; backward: order, gate and the dense part, with gradients beside it."""
        last = self.shared_done + [t for c in range(len(self.rows)) for t in self.home(c)]
        beside = gradient_beside_dense or (lambda: None)
        if not self.backward:
            after = self.compute("i_order", self.p.ordered(), last)
            if self.name == "fused":
                self.collective("mp_allgather", "allgather", "mp", self.blm, after)
            return
        after = self.compute("order", self.p.ordered(), last)
        after = self.compute("gate", self.p.gate(True, self.gate_tokens()), after)
        if self.name == "replicated":
            after = self.collective("tokens_reducescatter", "reducescatter", "esp", self.blm * self.layer.esp, after)
        if self.name in ("sharded", "fused"):
            after = self.collective("mp_allgather", "allgather", "mp", self.blm, after)
        beside()
        kind = "attention_dx" if self.halves else "attention"
        after = made = attend(self.p, kind, True, after, self.compute, self.gather, self.send)
        if self.name == "sharded":
            after = self.collective("mp_reducescatter", "reducescatter", "mp", self.blm, after)
        else:
            after = self.collective("mp_allreduce", "allreduce", "mp", self.blm, after)
        if self.halves:
            after = after + self.compute("attention_dw", self.p.attention(True, "attention_dw"), made)
        self.end = after

    # -- how rows travel, a chunk at a time --

    def put(self, kind, chunk, after):
        self.done[kind, chunk] = after

    def dispatch(self, c):
        size = self.step * self.rows[c]
        if self.name in ("fused", "fused-gated"):
            done = self.collective("dispatch", "a2a-ep-esp", "ep-esp", size * self.layer.esp, self.ready, c)
        else:
            times = {"replicated": self.layer.mp * self.layer.esp, "tensor": self.layer.mp}.get(self.name, 1)
            done = self.collective("dispatch", "alltoall", "ep", size * times, self.ready, c)
        self.put("arrived", c, done)
        self.put("in", c, done)

    def allgather(self, c):
        size = self.step * self.rows[c]
        group = "mp" if self.name == "dropped" else "esp"
        self.put("in", c, self.collective("allgather", "allgather", group, size * self.p.size[group],
                                          self.done["arrived", c], c))

    def copy(self, c, lane="copy"):
        """Only chunks interleave the layout, so that one chunk needs no copy."""
        size = self.step * self.rows[c] * self.layer.mp
        self.put("in", c, self.t.add("copy", c, lane, self.p.moved(size), self.done["in", c]))

    def expert(self, c):
        self.experts([c], c)

    def expert_weights(self, c):
        """Weight gradients of a chunk, which nothing waits for but what comes behind them on their lane."""
        self.compute("expert_dw", self.p.half_expert(self.rows[c]), self.done["made", c], c)

    def experts(self, chunks, label=0):
        """Adds one expert task over the rows of these chunks."""
        layer = self.layer
        after = [t for c in chunks for t in self.done["in", c]]
        times = {"replicated": layer.mp, "tensor": layer.mp / layer.esp,
                 "dropped": layer.mp / layer.esp}.get(self.name, 1)
        rows = sum(self.rows[c] for c in chunks)
        if self.halves:
            done = self.compute("expert_dx", self.p.half_expert(rows), after, label)
        else:
            done = self.compute("expert", self.p.expert(self.backward, rows, times), after, label)
        for c in chunks:
            self.put("made", c, done)
            self.put("summed", c, done)

    def reducescatter(self, c):
        size = self.step * self.rows[c] * self.layer.esp
        self.put("summed", c, self.collective("reducescatter", "reducescatter", "esp", size, self.done["made", c], c))

    def allreduce(self, c):
        """Sums partial sums. The replicated baseline's backward sums tokens instead, behind the gate."""
        if self.name == "replicated" and self.backward:
            return
        times = self.layer.mp * (self.layer.esp if self.name == "replicated" else 1)
        self.put("summed", c, self.collective("allreduce", "allreduce", "esp", self.step * self.rows[c] * times,
                                              self.done["made", c], c))

    def combine(self, c):
        size = self.step * self.rows[c]
        if self.name in ("fused", "fused-gated"):
            done = self.collective("combine", "a2a-ep-esp", "ep-esp", size * self.layer.esp, self.done["summed", c], c)
        else:
            times = {"replicated": self.layer.mp * self.layer.esp, "tensor": self.layer.mp}.get(self.name, 1)
            done = self.collective("combine", "alltoall", "ep", size * times, self.done["summed", c], c)
        self.put("home", c, done)

    def home(self, c):
        return self.done["home", c]
