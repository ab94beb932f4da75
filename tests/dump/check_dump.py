"""usage: check_dump.py FOLDER...

Recomputes layers that `layerbench --dump` wrote, forward and gradients, by numpy alone and in float64, from the inputs,
weights, noise and dY of all ranks' files put together; and compares output, dX, routing and every weight's gradient
with what the ranks wrote, at the manifest's tolerance. Of a model that `modelbench --dump` wrote, all of it follows
from tokens, weights and noise: the loss is compared too. Gates: gshard, switch, sigmoid. Skipped without numpy."""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-numpy", "numpy")
import numpy as np  # noqa: E402
from model_ends import ModelEnds, StackEnds  # noqa: E402

try:
    from safetensors.numpy import load_file
except ImportError:  # the format is small enough to be read without

    def load_file(path):
        types = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4"}
        with open(path, "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:8], "little")
        tensors = {}
        for name, entry in json.loads(data[8:8 + size]).items():
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + size + begin:8 + size + end],
                                          types[entry["dtype"]]).reshape(entry["shape"])
        return tensors


def whole_tensors(folder, manifest):
    """Each tensor put together from its parts; what several ranks have must agree."""
    whole, seen = {}, {}
    for rank in manifest["ranks"]:
        parts = load_file(os.path.join(folder, rank["file"]))
        assert set(parts) == set(rank["tensors"]), f"{rank['file']}: other tensors than the manifest's"
        for name, axes in rank["tensors"].items():
            place = tuple(slice(first, first + count) for first, count, _ in axes)
            if name not in whole:
                whole[name] = np.zeros([total for _, _, total in axes], parts[name].dtype)
                seen[name] = np.zeros(whole[name].shape, bool)
            both = seen[name][place]
            scale = np.abs(parts[name]).max(initial=0) or 1
            worst = np.abs(parts[name] - whole[name][place])[both].max(initial=0) / scale
            assert worst <= manifest["tolerance"], f"{name}: ranks differ by {worst:.1e}"
            whole[name][place] = parts[name]
            seen[name][place] = True
    for name, where in seen.items():
        assert where.all(), f"{name}: no rank has all of it"
    return {name: t if t.dtype.kind == "i" else t.astype(np.float64) for name, t in whole.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_backward(p, dp):
    return p * (dp - (p * dp).sum(-1, keepdims=True))


class Norm:
    """gain (x - mean) / sqrt(variance + 1e-5) + bias; the mean stays in RMSNorm. Without a gain of its name: none."""

    def __init__(self, layer, t, name):
        self.name, self.gain, self.bias = name, t.get(name), t.get(name + "_bias")
        self.centred = layer["norm"] != "rmsnorm"

    def forward(self, x):
        if self.gain is None:
            return x
        centred = x - x.mean(-1, keepdims=True) if self.centred else x
        self.scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        self.normal = centred * self.scale
        return self.gain * self.normal + (0 if self.bias is None else self.bias)

    def backward(self, dy):
        if self.gain is None:
            return dy, {}
        d = self.gain * dy
        dx = d - self.normal * (d * self.normal).mean(-1, keepdims=True)
        if self.centred:
            dx -= d.mean(-1, keepdims=True)
        gradients = {self.name: (dy * self.normal).sum(0)}
        if self.bias is not None:
            gradients[self.name + "_bias"] = dy.sum(0)
        return dx * self.scale, gradients


class SampleOrder:
    """Rows lie by rank. Under context parallelism rank c of C has of every sample, in 2 C pieces, c and 2 C - 1 - c."""

    def __init__(self, manifest):
        self.ranks, self.seq, self.batch = (manifest["parallel"].get("cp", 1), manifest["layer"]["seq"],
                                            manifest["layer"]["batch"])

    def by_sample(self, x):
        return x[np.argsort(self.numbers(len(x)))] if self.ranks > 1 else x

    def by_rank(self, x):
        return x[self.numbers(len(x))] if self.ranks > 1 else x

    def numbers(self, rows):
        """Of each row in the order of ranks, its number in the order of samples."""
        sample_rows = np.arange(rows).reshape(-1, self.batch, 2 * self.ranks, self.seq // (2 * self.ranks))
        return np.concatenate([np.concatenate([group[:, [c, 2 * self.ranks - 1 - c]].ravel()
                                               for c in range(self.ranks)]) for group in sample_rows])


class Attention:
    """Attention with key-value heads that several query heads share."""

    def __init__(self, manifest, w):
        layer, self.order = manifest["layer"], SampleOrder(manifest)
        self.w, self.seq, self.heads = w, layer["seq"], layer["heads"]
        self.kv, self.d = layer["kv_heads"], layer.get("head_dim", layer["model_dim"] // layer["heads"])
        self.theta, self.causal, self.bias = layer.get("rope_theta", 0), layer.get("causal", True), "bq" in w
        self.window = layer.get("window", self.seq)
        assert self.bias == layer.get("bias", False)

    def split(self, x):  # (tokens, heads d) -> (sequences, heads, L, d)
        return x.reshape(-1, self.seq, x.shape[1] // self.d, self.d).transpose(0, 2, 1, 3)

    def join(self, x):
        return x.transpose(0, 2, 1, 3).reshape(-1, x.shape[1] * self.d)

    def shared(self, x):  # a key-value head for each query head
        return np.repeat(x, self.heads // self.kv, axis=1)

    def unshared(self, dx):
        return dx.reshape(dx.shape[0], self.kv, -1, self.seq, self.d).sum(2)

    def rotated(self, x, sign=1):
        """x (sequences, heads, L, d): a dense matrix per place, of plane rotations, times each head."""
        if not self.theta:
            return x
        half = self.d // 2
        turns = np.zeros((self.seq, self.d, self.d))
        for j in range(half):
            angle = sign * np.arange(self.seq) * float(self.theta) ** (-j / half)
            turns[:, j, j] = turns[:, j + half, j + half] = np.cos(angle)
            turns[:, j, j + half], turns[:, j + half, j] = -np.sin(angle), np.sin(angle)
        return np.einsum("lij,nhlj->nhli", turns, x)

    def forward(self, x):
        self.x = x = self.order.by_sample(x)
        q, k, v = (self.split(x @ self.w["w" + name] + (self.w["b" + name] if self.bias else 0)) for name in "qkv")
        self.q, self.k, self.v = self.rotated(q), self.shared(self.rotated(k)), self.shared(v)
        scores = self.q @ self.k.transpose(0, 1, 3, 2) / math.sqrt(self.d)
        if self.causal:
            scores[..., np.triu(np.ones((self.seq, self.seq), bool), 1)] = -np.inf
            scores[..., np.tril(np.ones((self.seq, self.seq), bool), -self.window)] = -np.inf
        self.p = softmax(scores)
        self.mixed = self.join(self.p @ self.v)
        return self.order.by_rank(self.mixed @ self.w["wo"] + (self.w["bo"] if self.bias else 0))

    def backward(self, dy):
        dy = self.order.by_sample(dy)
        gradients = {"wo": self.mixed.T @ dy}
        if self.bias:
            gradients["bo"] = dy.sum(0)
        dmixed = self.split(dy @ self.w["wo"].T)
        dscores = softmax_backward(self.p, dmixed @ self.v.transpose(0, 1, 3, 2)) / math.sqrt(self.d)
        parts = {"wq": self.rotated(dscores @ self.k, -1),
                 "wk": self.rotated(self.unshared(dscores.transpose(0, 1, 3, 2) @ self.q), -1),
                 "wv": self.unshared(self.p.transpose(0, 1, 3, 2) @ dmixed)}
        dx = 0
        for name, part in parts.items():
            flat = self.join(part)
            gradients[name] = self.x.T @ flat
            if self.bias:
                gradients["b" + name[1:]] = flat.sum(0)
            dx = dx + flat @ self.w[name].T
        return self.order.by_rank(dx), gradients


class LatentAttention(Attention):
    """Attention whose keys, values and perhaps queries are made from latents; heads share a rotary key."""

    def __init__(self, manifest, w):
        layer = manifest["layer"]
        super().__init__(manifest, w)
        self.nope, self.d = layer["qk_nope_head_dim"], layer["qk_rope_head_dim"]  # d: of what turns
        rms = {"norm": "rmsnorm"}
        self.of_q = Norm(rms, w, "norm_q") if layer.get("q_lora_rank") else None
        self.of_k = Norm(rms, w, "norm_kv")

    def heads_of(self, x, heads):
        return x.reshape(-1, self.seq, heads, x.shape[1] // heads).transpose(0, 2, 1, 3)

    def flat(self, x):
        return x.transpose(0, 2, 1, 3).reshape(-1, x.shape[1] * x.shape[3])

    def forward(self, x):
        w, self.x = self.w, self.order.by_sample(x)
        self.cq = self.of_q.forward(self.x @ w["wdq"]) if self.of_q else self.x
        self.ck = self.of_k.forward(self.x @ w["wdkv"])
        q = self.heads_of(self.cq @ w["wuq" if self.of_q else "wq"], self.heads)
        self.q = np.concatenate([q[..., :self.nope], self.rotated(q[..., self.nope:])], -1)
        own = self.heads_of(self.ck @ w["wuk"], self.heads)
        shared = np.repeat(self.rotated(self.heads_of(self.x @ w["wkr"], 1)), self.heads, axis=1)
        self.k, self.v = np.concatenate([own, shared], -1), self.heads_of(self.ck @ w["wuv"], self.heads)
        scores = self.q @ self.k.transpose(0, 1, 3, 2) / math.sqrt(self.nope + self.d)
        if self.causal:
            scores[..., np.triu(np.ones((self.seq, self.seq), bool), 1)] = -np.inf
            scores[..., np.tril(np.ones((self.seq, self.seq), bool), -self.window)] = -np.inf
        self.p = softmax(scores)
        self.mixed = self.flat(self.p @ self.v)
        return self.order.by_rank(self.mixed @ w["wo"])

    def backward(self, dy):
        w, dy = self.w, self.order.by_sample(dy)
        gradients = {"wo": self.mixed.T @ dy}
        dmixed = self.heads_of(dy @ w["wo"].T, self.heads)
        dscores = softmax_backward(self.p, dmixed @ self.v.transpose(0, 1, 3, 2)) / math.sqrt(self.nope + self.d)
        dq, dk = dscores @ self.k, dscores.transpose(0, 1, 3, 2) @ self.q
        dq = self.flat(np.concatenate([dq[..., :self.nope], self.rotated(dq[..., self.nope:], -1)], -1))
        dkr = self.flat(self.rotated(dk[..., self.nope:].sum(1, keepdims=True), -1))
        dkn, dv = self.flat(dk[..., :self.nope]), self.flat(self.p.transpose(0, 1, 3, 2) @ dmixed)
        name = "wuq" if self.of_q else "wq"
        gradients |= {name: self.cq.T @ dq, "wuk": self.ck.T @ dkn, "wuv": self.ck.T @ dv, "wkr": self.x.T @ dkr}
        dx = dkr @ w["wkr"].T
        dck, of_norm = self.of_k.backward(dkn @ w["wuk"].T + dv @ w["wuv"].T)
        gradients |= of_norm | {"wdkv": self.x.T @ dck}
        dx = dx + dck @ w["wdkv"].T
        dcq = dq @ w[name].T
        if self.of_q:
            dcq, of_norm = self.of_q.backward(dcq)
            gradients |= of_norm | {"wdq": self.x.T @ dcq}
            dcq = dcq @ w["wdq"].T
        return self.order.by_rank(dx + dcq), gradients


def attention_of(manifest, w):
    return (LatentAttention if manifest["layer"].get("kv_lora_rank") else Attention)(manifest, w)


class Gate:
    def __init__(self, manifest, tensors):
        self.layer, self.m, self.t = manifest["layer"], manifest, tensors
        self.name, self.experts = self.layer["gate"], self.layer["experts"]
        assert self.name in ("gshard", "switch", "sigmoid"), f"gate {self.name} is not recomputed here"
        assert self.name == "sigmoid" or self.layer["top_k"] <= self.experts

    def forward(self, x):
        self.x = x
        self.logits = x @ self.t["gate"].T
        if self.name == "gshard":
            self.spread = x @ self.t["gate_noise"].T
            self.logits = self.logits + self.t["noise"] * np.logaddexp(0, self.spread)
        self.choices = self.checked_choices()
        chosen = np.take_along_axis(self.logits, self.choices, 1)
        self.p = softmax(self.logits)
        self.weight = {"gshard": lambda: softmax(chosen), "sigmoid": lambda: sigmoid(chosen),
                       "switch": lambda: np.take_along_axis(self.p, self.choices, 1)}[self.name]()
        return self.choices, self.checked_rows(), self.weight

    def checked_choices(self):
        """The dumped choices, if no expert that was passed over is clearly better."""
        choices = self.t["routing.expert"].astype(np.int64)
        assert all(len(set(c)) == len(c) for c in choices.tolist()), "routing: an expert twice for one token"
        if self.m["preset"]:
            return choices
        best = -np.sort(-self.logits, axis=1)[:, :choices.shape[1]]
        worst = (best - np.take_along_axis(self.logits, choices, 1)).max() / np.abs(self.logits).max()
        assert worst <= self.m["tolerance"], f"routing: a chosen expert is {worst:.1e} worse than the best"
        return choices

    def checked_rows(self):
        """In every group of tokens first choices in token order, then second ones, ...; -1 beyond the capacity."""
        group, rows = self.m["group_tokens"], np.full(self.choices.shape, -1)
        for first in range(0, len(rows), group):
            used = [0] * self.experts
            for choice in range(rows.shape[1]):
                for token in range(first, first + group):
                    expert = self.choices[token, choice]
                    if used[expert] < self.m["capacity_rows"]:
                        rows[token, choice] = used[expert]
                    used[expert] += 1
        assert (rows == self.t["routing.row"]).all(), "routing: rows differ"
        return rows

    def backward(self, dweight):
        if self.name == "gshard":
            dlogits = self.scattered(softmax_backward(self.weight, dweight))
        elif self.name == "sigmoid":
            dlogits = self.scattered(dweight * self.weight * (1 - self.weight))
        else:
            dlogits = softmax_backward(self.p, self.scattered(dweight))
        dlogits += self.losses_backward()
        gradients = {"gate": dlogits.T @ self.x}
        dx = dlogits @ self.t["gate"]
        if self.name == "gshard":
            dspread = dlogits * self.t["noise"] * sigmoid(self.spread)
            gradients["gate_noise"] = dspread.T @ self.x
            dx += dspread @ self.t["gate_noise"]
        return dx, gradients

    def scattered(self, dchosen):
        d = np.zeros_like(self.logits)
        np.put_along_axis(d, self.choices, dchosen, 1)
        return d

    def losses_backward(self):
        """Of aux_loss E sum_e (share of first choices of e) (mean probability of e) + z_loss mean(log-sum-exp^2)."""
        tokens = len(self.logits)
        shares = np.bincount(self.choices[:, 0], minlength=self.experts) / tokens
        balance = self.layer["aux_loss"] * self.experts / tokens
        most = self.logits.max(1, keepdims=True)
        log_sum = most + np.log(np.exp(self.logits - most).sum(1, keepdims=True))
        return (softmax_backward(self.p, np.broadcast_to(balance * shares, self.p.shape)) +
                self.layer["z_loss"] * 2 * log_sum / tokens * self.p)


erf = np.vectorize(math.erf, otypes=[np.float64])


EXPERT_WEIGHTS = ("w1", "w2", "w3", "b1", "b2", "b3")


def fp8(x, height):
    """x in blocks of height x 128: numbers of 4 bits behind a leading exponent (e4m3), times a power of two each."""
    blocks = x.reshape(x.shape[0] // height, height, x.shape[1] // 128, 128)
    fraction, exponent = np.frexp(np.abs(blocks).max((1, 3), keepdims=True) / 448)
    scale = np.exp2(np.maximum(exponent - (fraction == 0.5), -100.0))
    inside = blocks / scale
    step = np.exp2(np.maximum(np.frexp(inside)[1] - 1, -6) - 3.0)
    return (np.round(inside / step) * step * scale).reshape(x.shape)


class Expert:
    def __init__(self, ffn, w, e):
        self.ffn = ffn
        self.w = {name: w[name][e] for name in EXPERT_WEIGHTS if name in w}
        self.bias = "b1" in w

    def product(self, x, number):
        return self.times(x, self.w["w" + number]) + (self.w["b" + number] if self.bias else 0)

    def times(self, x, w, turned=False):
        if self.ffn == "mixtral-fp8":
            x, w = fp8(x, 1), fp8(w, 128)
        return x @ (w.T if turned else w)

    def forward(self, x):
        self.x = x
        self.a = self.product(x, "1")
        if self.ffn == "gpt":  # x Phi(x)
            self.phi = 0.5 * (1 + erf(self.a / math.sqrt(2)))
            self.hidden = self.a * self.phi
        elif self.ffn == "gpt-tanh":
            self.tanh = np.tanh(math.sqrt(2 / math.pi) * (self.a + 0.044715 * self.a**3))
            self.hidden = self.a * (1 + self.tanh) / 2
        else:  # silu(a) b
            self.b = self.product(x, "3")
            self.s = sigmoid(self.a)
            self.hidden = self.a * self.s * self.b
        return self.product(self.hidden, "2")

    def backward(self, dy):
        gradients, dx = {}, 0
        d = self.product_backward(self.hidden, dy, "2", gradients)
        if self.ffn == "gpt":
            da = d * (self.phi + self.a * np.exp(-self.a**2 / 2) / math.sqrt(2 * math.pi))
        elif self.ffn == "gpt-tanh":
            slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * self.a**2)
            da = d * (1 + self.tanh + self.a * (1 - self.tanh**2) * slope) / 2
        else:
            da = d * self.b * self.s * (1 + self.a * (1 - self.s))
            dx = self.product_backward(self.x, d * self.a * self.s, "3", gradients)
        return dx + self.product_backward(self.x, da, "1", gradients), gradients

    def product_backward(self, x, d, number, gradients):
        gradients["w" + number] = x.T @ d
        if self.bias:
            gradients["b" + number] = d.sum(0)
        return self.times(d, self.w["w" + number], turned=True)


class Experts:
    """A token's output is the sum over its kept pairs of weight * expert(token)."""

    def __init__(self, layer, w):
        self.w = w
        self.parts = [Expert(layer["ffn"], w, e) for e in range(layer["experts"])]

    def forward(self, x, choices, rows, weight):
        self.weight, self.pairs, self.out = weight, [], []
        y = np.zeros_like(x)
        for e, expert in enumerate(self.parts):
            token, choice = np.nonzero((choices == e) & (rows >= 0))
            self.pairs.append((token, choice))
            self.out.append(expert.forward(x[token]))
            np.add.at(y, token, weight[token, choice, None] * self.out[-1])
        return y

    def backward(self, dy):
        dx, dweight = np.zeros_like(dy), np.zeros_like(self.weight)
        gradients = {name: np.zeros_like(self.w[name]) for name in EXPERT_WEIGHTS if name in self.w}
        for e, ((token, choice), expert) in enumerate(zip(self.pairs, self.parts)):
            dweight[token, choice] = (dy[token] * self.out[e]).sum(1)
            d, own = expert.backward(self.weight[token, choice, None] * dy[token])
            np.add.at(dx, token, d)
            for name, gradient in own.items():
                gradients[name][e] = gradient
        return dx, dweight, gradients


class Shared:
    """The expert that every token passes, a dense layer's feed-forward too; nothing where there is none."""

    def __init__(self, layer, t, there, prefix="shared_"):
        self.prefix = prefix
        w = {name: t[prefix + name][None] for name in EXPERT_WEIGHTS if prefix + name in t}
        assert bool(w) == there, f"{prefix}: weights of one, and none in the layer's shape, or the other way round"
        self.expert = Expert(layer["ffn"], w, 0) if w else None

    def forward(self, x):
        return self.expert.forward(x) if self.expert else 0

    def backward(self, dy):
        if not self.expert:
            return 0, {}
        dx, gradients = self.expert.backward(dy)
        return dx, {self.prefix + name: gradient for name, gradient in gradients.items()}


class DenseLayer:
    """Attention and a feed-forward, each with its norm and residual."""

    def __init__(self, manifest, t):
        layer, self.residual = manifest["layer"], manifest["layer"]["residual"]
        self.norms = [Norm(layer, t, name) for name in ("norm1", "norm2")]
        self.parts = [attention_of(manifest, t), Shared(layer, t, True, "ffn_")]
        hidden = t["ffn_w1"].shape[1]
        assert hidden == manifest["dense_hidden"], f"feed-forward: {hidden} columns, the manifest has others"
        assert not {"gate", "w1", "routing.expert"} & set(t), "a dense layer has experts"

    def forward(self, x):
        for norm, part in zip(self.norms, self.parts):
            x = part.forward(norm.forward(x)) + self.residual * x
        return x, None

    def backward(self, dy):
        every = {}
        for number in (1, 0):
            d, gradients = self.parts[number].backward(dy)
            d, of_norm = self.norms[number].backward(d)
            dy = d + self.residual * dy
            every |= gradients | of_norm
        return dy, every


class Layer:
    def __init__(self, manifest, t):
        layer, self.residual = manifest["layer"], manifest["layer"]["residual"]
        self.norms, self.post = [Norm(layer, t, name) for name in ("norm1", "norm2")], layer["norm"] == "post-layernorm"
        assert (layer["norm"] == "none") == (self.norms[0].gain is None)
        self.attention, self.gate, self.experts = attention_of(manifest, t), Gate(manifest, t), Experts(layer, t)
        self.shared = Shared(layer, t, "shared_hidden" in layer)

    def forward(self, x):
        if self.post:
            hidden = normed = self.norms[0].forward(self.attention.forward(x) + self.residual * x)
        else:
            hidden = self.attention.forward(self.norms[0].forward(x)) + self.residual * x
            normed = self.norms[1].forward(hidden)
        routed = self.gate.forward(normed)
        y = self.experts.forward(normed, *routed) + self.shared.forward(normed) + self.residual * hidden
        return self.norms[1].forward(y) if self.post else y, routed[2]

    def backward(self, dy):
        every = {}
        if self.post:
            dy, of_norm = self.norms[1].backward(dy)
            every |= of_norm
        dnormed, dweight, gradients = self.experts.backward(dy)
        dgate, of_gate = self.gate.backward(dweight)
        dshared, of_shared = self.shared.backward(dy)
        dhidden = dnormed + dgate + dshared
        if self.post:
            dhidden, of_norm = self.norms[0].backward(dhidden + self.residual * dy)
        else:
            dhidden, of_norm = self.norms[1].backward(dhidden)
            dhidden += self.residual * dy
        every |= of_norm
        dx, of_attention = self.attention.backward(dhidden)
        if not self.post:
            dx, of_norm = self.norms[0].backward(dx)
            every |= of_norm
        return dx + self.residual * dhidden, every | gradients | of_shared | of_gate | of_attention


def prefixes(manifest, layer, micro_batch):
    """Begin names of a layer's weights, and of what one micro-batch has; none where the layer is the only one."""
    stages = manifest["parallel"]["pp"]
    if manifest["layers"] == manifest["micro_batches"] == stages == 1 and "vocabulary" not in manifest:
        return "", ""
    return f"layer-{layer}.", f"layer-{layer}.micro-batch-{micro_batch}."


def stage_ends(manifest):
    """The first layers of the stages, and the last ones: a dump has what enters and leaves them."""
    stages = manifest["parallel"]["pp"]
    each, more = divmod(manifest["layers"], stages)
    firsts = [stage * each + min(stage, more) for stage in range(stages)]
    return firsts, [first - 1 for first in firsts[1:]] + [manifest["layers"] - 1]


def ends_of(manifest, t):
    if "vocabulary" in manifest:
        return ModelEnds(manifest, t, SampleOrder(manifest), lambda name: Norm(manifest["layer"], t, name))
    first, last = 0, manifest["layers"] - 1
    return StackEnds(t, lambda m: prefixes(manifest, first, m)[1], lambda m: prefixes(manifest, last, m)[1])


def of_layer_number(manifest, number):
    """The manifest of one layer, whose attention sees all tokens where its model's other layers have a window."""
    if manifest.get("windowed_layers", "1" * manifest["layers"])[number] == "1":
        return manifest
    return {**manifest, "layer": {key: value for key, value in manifest["layer"].items() if key != "window"}}


def recomputed(manifest, t, ends):
    """What the layers should have written, by the names of the dump: from what `ends` put into the first layer and
    into the last one's backward, with the choices of all."""
    found, last = {}, manifest["layers"] - 1
    firsts, lasts = stage_ends(manifest)
    for micro_batch in range(manifest["micro_batches"]):
        layers = []
        flowing = ends.before(micro_batch)
        for number in range(last + 1):
            of_layer, own = prefixes(manifest, number, micro_batch)
            known = {name.removeprefix(of_layer): w for name, w in t.items()
                     if name.startswith(of_layer) and "micro-batch" not in name}
            known |= {name.removeprefix(own): w for name, w in t.items() if name.startswith(own)}
            dense = number in manifest.get("dense_layers", [])
            layers.append((DenseLayer if dense else Layer)(of_layer_number(manifest, number), known))
            if number in firsts:
                found[own + "input"] = flowing
            flowing, weight = layers[-1].forward(flowing)
            if not dense:
                found[own + "routing.weight"] = weight
            if number in lasts:
                found[own + "output"] = flowing
        flowing = ends.behind(micro_batch, flowing)
        for number in range(last, -1, -1):
            of_layer, own = prefixes(manifest, number, micro_batch)
            if number in lasts:
                found[own + "output_gradient"] = flowing
            flowing, gradients = layers[number].backward(flowing)
            if number in firsts:
                found[own + "input_gradient"] = flowing
            for name, gradient in gradients.items():
                name = f"{of_layer}{name}.gradient"
                found[name] = found.get(name, 0) + gradient
        for name, gradient in ends.backward(micro_batch, flowing).items():
            found[name + ".gradient"] = found.get(name + ".gradient", 0) + gradient
    return found | ends.logits


def check(folder):
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)
    tensors = whole_tensors(folder, manifest)
    gradients = {name for name in tensors if name.endswith("gradient")}
    if "vocabulary" not in manifest:
        gradients -= {prefixes(manifest, manifest["layers"] - 1, m)[1] + "output_gradient"
                      for m in range(manifest["micro_batches"])}
    known = {name: t for name, t in tensors.items() if name not in gradients}
    ends = ends_of(manifest, known)
    found = recomputed(manifest, known, ends)
    assert gradients <= set(found), f"not recomputed: {gradients - set(found)}"
    worst, where = 0, ""
    for name, expected in found.items():
        written = tensors[name].reshape(expected.shape)
        terms = found[name.replace("bk.gradient", "wk.gradient")]  # what all keys have in common cancels: its terms
        error = np.abs(written - expected).max() / (np.abs(terms).max() or 1)
        assert error <= manifest["tolerance"], f"{folder}: {name} is off by {error:.2e} of its largest value"
        if error >= worst:
            worst, where = error, name
    rows = np.concatenate([t.ravel() for name, t in tensors.items() if name.endswith("routing.row")])
    print(f"{manifest['schedule']} {manifest['degree_forward']}/{manifest['degree_backward']} {manifest['flow']} "
          f"{manifest['layer']['gate']} {manifest['layer']['ffn']} {manifest['layer']['dtype']}: {len(found)} tensors "
          f"of {len(manifest['ranks'])} ranks, {(rows < 0).sum()} of {rows.size} pairs dropped, off by at most "
          f"{worst:.1e} ({where})" + loss_text(manifest, ends))


def loss_text(manifest, ends):
    if "vocabulary" not in manifest:
        return ""
    error = abs(manifest["loss"] / ends.loss - 1)
    assert error <= manifest["tolerance"], f"loss {manifest['loss']:.12f}, expected {ends.loss:.12f}"
    return f"; loss {ends.loss:.12f}, off by {error:.1e}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for argument in sys.argv[1:]:
        check(argument)
