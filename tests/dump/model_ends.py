"""What stands around the layers of a model, by numpy: x = E[token] + P[place] before them; behind them a norm, logits
z = n H^T, and the loss, the mean over all tokens of log(sum exp z) - z[next token]."""
import numpy as np


class StackEnds:
    """Of layers alone: what goes in, forward and backward, is given."""

    def __init__(self, t, first, last):
        self.t, self.first, self.last = t, first, last

    def before(self, micro_batch):
        return self.t[self.first(micro_batch) + "input"]

    def behind(self, micro_batch, y):
        return self.t[self.last(micro_batch) + "output_gradient"]

    def backward(self, micro_batch, dx):
        return {}


class ModelEnds:
    def __init__(self, manifest, t, make_norm):
        self.t, self.seq, self.make_norm = t, manifest["layer"]["seq"], make_norm
        self.loss, self.of_head = 0, {}
        self.count = sum(tokens.size for name, tokens in t.items() if name.endswith(".targets"))
        for name in ("tokens", "targets"):
            known = manifest["vocabulary"]
            assert all((0 <= t[f"micro-batch-{m}.{name}"]).all() and (t[f"micro-batch-{m}.{name}"] < known).all()
                       for m in range(manifest["micro_batches"])), f"{name}: not all are 0 to {known - 1}"
        self.check_targets(manifest["micro_batches"])

    def check_targets(self, micro_batches):
        """A token's target is the token behind it in its sample."""
        for m in range(micro_batches):
            tokens, targets = (self.t[f"micro-batch-{m}.{name}"].reshape(-1, self.seq)
                               for name in ("tokens", "targets"))
            assert (tokens[:, 1:] == targets[:, :-1]).all(), "targets: not the tokens that follow"

    def before(self, micro_batch):
        self.tokens = self.t[f"micro-batch-{micro_batch}.tokens"]
        self.places = np.arange(self.tokens.size) % self.seq
        x = self.t["embedding"][self.tokens]
        return x + self.t["places"][self.places] if "places" in self.t else x

    def behind(self, micro_batch, y):
        norm = self.make_norm(self.t.get("norm3"))
        normed = norm.forward(y)
        logits = normed @ self.t["head"].T
        rows, targets = np.arange(len(logits)), self.t[f"micro-batch-{micro_batch}.targets"]
        most = logits.max(1, keepdims=True)
        exp = np.exp(logits - most)
        self.loss += (np.log(exp.sum(1)) + most[:, 0] - logits[rows, targets]).sum() / self.count
        dlogits = exp / exp.sum(1, keepdims=True)
        dlogits[rows, targets] -= 1
        dlogits /= self.count
        dy, dgain = norm.backward(dlogits @ self.t["head"])
        self.of_head = {"head": dlogits.T @ normed, "norm3": dgain}
        return dy

    def backward(self, micro_batch, dx):
        found = {name: gradient for name, gradient in self.of_head.items() if gradient is not None}
        for name, rows in (("embedding", self.tokens), ("places", self.places)):
            if name in self.t:
                found[name] = np.zeros_like(self.t[name])
                np.add.at(found[name], rows, dx)
        return found
