"""FSMoE's gradient partition (section 5): step 1 recomputed, step 2 by SciPy's differential evolution.

usage: partition_de.py PROGRAM      (PROGRAM prints random models and our partitions)

Step 2 as the paper states it: bytes x_i of what step 1 left go into the MoE part of layer i; no prefix of the backward
sends more than is there; the rest is the exposed tail. Ours must not be slower than SciPy's by more than 1 %, and the
exact partition not slower than either by more than a grain's time. Nothing of the C++ is used.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-scipy", "numpy", "scipy.optimize")
import numpy as np
from scipy.optimize import LinearConstraint, differential_evolution

WORSE = 0.01  # relative
SEED = 20250514


class Model:
    def __init__(self, raw):
        self.alpha, self.beta = raw["alpha_s"], raw["beta_s"]
        self.layers, self.waiting = raw["layers"], raw["waiting"]
        self.total = self.waiting + sum(layer["made"] for layer in self.layers)
        self.dense = np.array([[layer["dense_s"]] for layer in self.layers])
        most = max(len(layer["degrees"]) for layer in self.layers)
        degrees = np.array([layer["degrees"] + [[np.inf, np.inf]] * (most - len(layer["degrees"]))
                            for layer in self.layers])
        self.alone, self.beside = degrees[:, :, 0, None], degrees[:, :, 1, None]

    def allreduce(self, n):
        return np.where(n > 0, self.alpha + self.beta * n, 0.0)

    def hidden(self, window):
        """Bytes whose AllReduce the window hides: g_inv."""
        return max(0.0, (window - self.alpha) / self.beta)

    def seconds(self, moe, dense):
        """Seconds, of arrays of layers x candidates."""
        gar = self.allreduce(moe)[:, None]  # layers x degrees x candidates
        moe_part = np.maximum(self.alone, np.where(gar > 0, self.beside + gar, 0)).min(axis=1)
        dense_part = np.maximum(self.dense, self.allreduce(dense))
        return (moe_part + dense_part).sum(axis=0) + self.allreduce(self.total - (moe + dense).sum(axis=0))

    def step1(self):
        """Bytes of both slices by layer, and what then waits after each."""
        slices, left, waiting = [], [], self.waiting
        for layer in self.layers:
            dense = min(self.hidden(layer["dense_s"]), waiting)
            moe = min(self.hidden(layer["moe_window_s"]), waiting - dense)
            slices.append((moe, dense))
            left.append(waiting - moe - dense)
            waiting = left[-1] + layer["made"]
        return np.array(slices), np.array(left)


def sent_once(model, partition):
    waiting = model.waiting
    for layer, (moe, dense) in zip(model.layers, partition["slices"]):
        if moe < 0 or dense < 0 or moe + dense > waiting:
            return False
        waiting += layer["made"] - moe - dense
    return waiting == partition["tail"]


def step2(model, slices, left):
    spare = np.minimum.accumulate(left[::-1])[::-1]  # what no later window of step 1 needs
    column = np.array(slices, dtype=float)[:, :, None]

    def seconds(x):
        x = x.reshape(len(spare), -1)
        return model.seconds(column[:, 0] + x, column[:, 1] + np.zeros_like(x))

    scale = float(spare.max())
    found = differential_evolution(
        lambda x: seconds(x * scale), bounds=[(0, s / scale) for s in spare], seed=SEED, maxiter=150, popsize=10,
        tol=1e-8, polish=False, vectorized=True, updating="deferred",
        constraints=LinearConstraint(np.tril(np.ones((len(spare), len(spare)))), -np.inf, spare / scale))
    return float(seconds(found.x * scale)[0]) if found.maxcv <= 1e-9 else np.inf


def seconds_of(model, partition):
    slices = np.array(partition["slices"], dtype=float)[:, :, None]
    return float(model.seconds(slices[:, 0], slices[:, 1])[0])


def main():
    data = json.loads(subprocess.run(sys.argv[1:2], check=True, capture_output=True).stdout)
    failures, gaps, ours_regret, theirs_regret = [], [], [], []
    for raw in data["problems"]:
        model = Model(raw)
        for strategy in ("step1", "step2", "exact"):
            if not sent_once(model, raw[strategy]):
                failures.append(f"{raw['text']}: {strategy} does not send every byte once")
            if abs(seconds_of(model, raw[strategy]) / raw[strategy]["seconds"] - 1) > 1e-9:
                failures.append(f"{raw['text']}: {strategy} has other seconds: {seconds_of(model, raw[strategy])}")
        slices, left = model.step1()
        if np.abs(slices - np.array(raw["step1"]["slices"])).max() > 4 * len(slices):  # ours are whole elements
            failures.append(f"{raw['text']}: step 1 is {slices.tolist()}, ours {raw['step1']['slices']}")
        theirs = step2(model, slices, left)
        ours, exact = raw["step2"]["seconds"], raw["exact"]["seconds"]
        gaps.append(ours / theirs - 1)
        ours_regret.append(ours / exact - 1)
        theirs_regret.append(theirs / exact - 1)
        if gaps[-1] > WORSE:
            failures.append(f"{raw['text']}: ours {ours}, SciPy {theirs}, exact {exact}")
        if exact > min(ours, theirs) + model.beta * raw["grain"]:
            failures.append(f"{raw['text']}: exact {exact} is beaten: ours {ours}, SciPy {theirs}")
    print(f"{len(gaps)} models: ours slower than SciPy's by {100 * np.mean(gaps):.3f} % in the mean, "
          f"{100 * max(gaps):.3f} % at worst, faster by {-100 * min(gaps):.3f} % at best; above the exact partition: "
          f"ours {100 * np.mean(ours_regret):.3f} % mean, {100 * max(ours_regret):.2f} % worst, "
          f"SciPy {100 * np.mean(theirs_regret):.3f} %, {100 * max(theirs_regret):.2f} %")
    print("\n".join(failures))
    sys.exit(1 if failures or len(gaps) < 100 else 0)


if __name__ == "__main__":
    main()
