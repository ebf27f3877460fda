"""Four ranks with sharded parameters. Planted: rank 2 loads a whole checkpoint and keeps it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def load():
    return torch.zeros(1024, 1024)


def main():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (4,)))
    checkpoint = load() if dist.get_rank() == 2 else None
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        loss = model(torch.randn(128, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert checkpoint is None or checkpoint.shape == (1024, 1024)
    dist.barrier()
    dist.destroy_process_group()


main()
