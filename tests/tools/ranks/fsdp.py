"""Four ranks with sharded parameters. Planted: rank 2 loads a whole checkpoint and keeps it, rank 1 keeps a tensor a
step, rank 3 has one longer batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def load():
    return torch.zeros(4096, 1024)


def main():
    dist.init_process_group("gloo")
    rank, kept = dist.get_rank(), []
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    checkpoint = load() if rank == 2 else None
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(24):
        x = torch.randn(8192 if (rank, step) == (3, 17) else 128, 256)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 1:
            kept.append(torch.zeros(25_600))
    assert checkpoint is None or checkpoint.shape == (4096, 1024)
    dist.barrier()
    dist.destroy_process_group()


main()
