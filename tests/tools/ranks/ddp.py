"""Four ranks of one training. Planted: rank 1 keeps a tensor a step, rank 3 has one longer batch."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import cuptimem


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen = nn.Linear(256, 512)
        self.narrow = nn.Linear(512, 10)

    def forward(self, x):
        return self.narrow(torch.relu(self.widen(x)))


def train(rank, kept):
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.Adam(model.parameters())
    for i in range(24):
        rows = 4096 if rank == 3 and i == 17 else 512
        x = torch.randn(rows, 256)
        loss = nn.functional.cross_entropy(model(x), torch.zeros(rows, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1:
            kept.append(torch.zeros(25_600))


def main():
    dist.init_process_group("gloo")
    rank, kept = dist.get_rank(), []
    with cuptimem.profile(f"run-{rank}.cmem") as prof:
        train(rank, kept)
    if rank == 2 and "dies" in sys.argv:
        os._exit(0)
    ranks = cuptimem.gather(prof, timeout=60 if len(sys.argv) == 1 else 2)
    if rank == 0:
        with open("gathered.txt", "w", encoding="utf-8") as file:
            print(ranks, file=file)
    dist.destroy_process_group()


main()
