"""What stands around the layers of a model, by numpy: x = E[token] + P[place] before them; behind them a norm, logits
z = n H^T, and the loss, the mean over all targets of log(sum exp z) - z[target]. Where layers end in a norm, that norm
is behind x instead. A target is the next token, or what was masked."""
import math

import numpy as np


class StackEnds:
    """Ends of layers alone: what goes in, forward and backward, is given."""

    def __init__(self, t, first, last):
        self.t, self.first, self.last, self.logits = t, first, last, {}

    def before(self, micro_batch):
        return self.t[self.first(micro_batch) + "input"]

    def behind(self, micro_batch, y):
        return self.t[self.last(micro_batch) + "output_gradient"]

    def backward(self, micro_batch, dx):
        return {}


class ModelEnds:
    def __init__(self, manifest, t, order, make_norm):
        self.t, self.seq, self.order, self.make_norm = t, manifest["layer"]["seq"], order, make_norm
        self.logits = {}
        self.loss, self.of_head, self.causal = 0, {}, manifest["layer"].get("causal", True)
        self.known = manifest["vocabulary"]
        self.count = sum((targets >= 0).sum() for name, targets in t.items() if name.endswith(".targets"))
        for m in range(manifest["micro_batches"]):
            tokens, targets = (order.by_sample(t[f"micro-batch-{m}.{name}"]).reshape(-1, self.seq)
                               for name in ("tokens", "targets"))
            for name, of_text in (("tokens", tokens), ("targets", targets[targets >= 0])):
                assert ((0 <= of_text) & (of_text < self.known)).all(), f"{name}: not all are 0 to {self.known - 1}"
            if self.causal:
                self.check_targets(tokens, targets)
            else:
                self.check_masks(tokens, targets)

    def check_targets(self, tokens, targets):
        """A token's target is the token behind it in its sample."""
        assert (targets >= 0).all() and (tokens[:, 1:] == targets[:, :-1]).all(), "targets: not the tokens that follow"

    def check_masks(self, tokens, targets):
        """In each sample 15 % of the places have a target, and only there the mask, the last token, may stand."""
        places = max(1, math.floor(0.15 * self.seq + 0.5))
        assert ((targets >= 0).sum(1) == places).all(), f"targets: not {places} in every sample"
        assert (targets[tokens == self.known - 1] >= 0).all() and (targets < self.known - 1).all(), "targets: a mask"

    def before(self, micro_batch):
        self.tokens = self.t[f"micro-batch-{micro_batch}.tokens"]
        self.places = self.order.by_rank(np.arange(self.tokens.size)) % self.seq
        x = self.t["embedding"][self.tokens]
        x = x + self.t["places"][self.places] if "places" in self.t else x
        self.first_norm = self.make_norm("norm0")
        return self.first_norm.forward(x)

    def behind(self, micro_batch, y):
        norm = self.make_norm("norm3")
        normed = norm.forward(y)
        head = self.t["head" if "head" in self.t else "embedding"]  # tied
        logits = normed @ head.T
        targets = self.t[f"micro-batch-{micro_batch}.targets"]
        self.logits[f"micro-batch-{micro_batch}.logits"] = logits
        rows, targets = np.arange(len(logits))[targets >= 0], targets[targets >= 0]
        most = logits.max(1, keepdims=True)
        exp = np.exp(logits - most)
        self.loss += ((np.log(exp.sum(1)) + most[:, 0])[rows] - logits[rows, targets]).sum() / self.count
        dlogits = np.zeros_like(logits)
        dlogits[rows] = (exp / exp.sum(1, keepdims=True))[rows] / self.count
        dlogits[rows, targets] -= 1 / self.count
        dy, of_norm = norm.backward(dlogits @ head)
        self.of_head = {"head" if "head" in self.t else "embedding": dlogits.T @ normed, **of_norm}
        return dy

    def backward(self, micro_batch, dx):
        dx, of_norm = self.first_norm.backward(dx)
        found = {**self.of_head, **of_norm}
        for name, rows in (("embedding", self.tokens), ("places", self.places)):
            if name in self.t:
                found.setdefault(name, np.zeros_like(self.t[name]))
                np.add.at(found[name], rows, dx)
        return found
