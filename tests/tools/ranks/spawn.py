"""Two ranks that multiprocessing spawns, which no launcher has given a number. Planted: rank 1 has 4 MiB more."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def work(rank, store):
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{store}")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters())
    kept = torch.zeros(1 << 20) if rank == 1 else None
    for _ in range(4):
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    end = time.monotonic() + 120
    while not is_noted(f"run-0.{os.getpid()}.cmem") and time.monotonic() < end:
        sum(range(1000))
    dist.barrier()
    dist.destroy_process_group()
    assert kept is None or kept.numel() == 1 << 20


def is_noted(trace):
    """Whether its rank is in the trace, which it is within a second or two."""
    with open(trace, "rb") as file:
        return b"world_size" in file.read()


if __name__ == "__main__":
    mp.spawn(work, (os.path.abspath(sys.argv[1]),), nprocs=2)
