"""Ranks of one training, a device each. Planted: every rank loads a checkpoint to the device that it was saved from;
rank 2 is refused memory, and goes on without."""

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import cuptimem

RANK = int(os.environ["RANK"])
DEVICE = f"cuda:{RANK}"


def resume(model):
    state = torch.load("checkpoint.pt")  # without map_location
    model.load_state_dict(state)
    return state


def train(model, memory):
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        loss = model(torch.randn(64, 512, device=DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (RANK, step) == (2, 5):
            with contextlib.suppress(torch.OutOfMemoryError):
                torch.empty(1 << 40, device=DEVICE)
        memory.step()


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("gloo")
    with cuptimem.log(lambda found, step: None, path="run-{rank}.cmem", every=1) as memory:
        model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).to(DEVICE)
        if RANK == 0:
            torch.save(model.state_dict(), "checkpoint.pt")
        dist.barrier()
        state = resume(model)
        if "fsdp" in sys.argv:
            fully_shard(model, mesh=init_device_mesh("cuda", (4,)))
        else:
            model = DistributedDataParallel(model, device_ids=[RANK])
        train(model, memory)
        assert len(state) == 4
        end = time.monotonic() + 120
        while not os.path.exists("run-2.oom.txt") and time.monotonic() < end:
            time.sleep(0.01)
        dist.barrier()
    dist.destroy_process_group()


main()
