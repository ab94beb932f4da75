"""Trains a language model of two MoE layers on the bytes of a text, one rank or several:

    torchrun --nproc-per-node 2 examples/train_torch.py [TEXT] [STEPS]
"""
import os
import sys

import torch
from torch import distributed, nn
from torch.nn import functional

from moetune.torch import MoELayer, data_parallel

TEXT = sys.argv[1] if len(sys.argv) > 1 else __file__
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 50
BATCH, SEQ, WIDTH = 4, 64, 64
LAYER = {"batch": BATCH, "seq": SEQ, "model_dim": WIDTH, "hidden": 2 * WIDTH, "heads": 4, "experts": 4,
         "capacity_factor": None, "ffn": "mixtral", "rope_theta": 1e4, "aux_loss": 0.01}


def make_layer(seed):
    return MoELayer(schedule="fsmoe", degrees=2, losses="mean", seed=seed, **LAYER)


class Model(nn.Module):
    def __init__(self, layer=make_layer):
        super().__init__()
        self.embedding = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList(layer(seed) for seed in (1, 2))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main(layer=make_layer):
    if "RANK" in os.environ:  # torchrun's
        distributed.init_process_group("gloo")
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    torch.manual_seed(0)
    model = Model(layer)
    trained = data_parallel(model) if distributed.is_initialized() else model
    adam = torch.optim.AdamW(model.parameters(), 3e-3)
    with open(TEXT, "rb") as file:
        text = torch.tensor(list(file.read()))
    torch.manual_seed(rank)  # each rank has samples of its own
    for step in range(STEPS + 1):
        starts = torch.randint(len(text) - SEQ, (BATCH,)).tolist()
        tokens, following = (torch.stack([text[i + to:i + to + SEQ] for i in starts]) for to in (0, 1))
        loss = functional.cross_entropy(trained(tokens).view(-1, 256), following.view(-1))
        adam.zero_grad()
        loss.backward()
        adam.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step:3} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
