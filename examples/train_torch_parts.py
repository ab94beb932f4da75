"""Trains as train_torch.py does, with a gate and experts of its own, on one rank or several:

    torchrun --nproc-per-node 2 examples/train_torch_parts.py [TEXT] [STEPS]

The gate balances the load by a bias and no loss, as DeepSeek-V3's does. The bias follows rank 0's tokens, because
DistributedDataParallel gives rank 0's buffers to all ranks.
"""
import torch
from torch import nn
from train_torch import LAYER, WIDTH, main

from moetune.torch import MoELayer

EXPERTS, TOP_K = LAYER["experts"], 2


class BalancedGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.register_buffer("bias", torch.zeros(EXPERTS))

    def forward(self, hidden):
        scores = self.project(hidden).sigmoid()
        experts = (scores + self.bias).topk(TOP_K).indices
        if self.training:
            load = experts.flatten().bincount(minlength=EXPERTS).float()
            self.bias += 1e-3 * (load.mean() - load).sign()
        weights = scores.gather(1, experts)
        return experts, weights / weights.sum(1, keepdim=True)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.GELU(),
                                    nn.Linear(WIDTH, WIDTH))

    def forward(self, rows):
        return self.layers(rows)


def make_layer(seed):
    fields = {**LAYER, "aux_loss": 0.0, "top_k": TOP_K}
    return MoELayer(gate=BalancedGate(), expert=Expert, schedule="fsmoe", degrees=2, losses="mean", seed=seed, **fields)


if __name__ == "__main__":
    main(make_layer)
