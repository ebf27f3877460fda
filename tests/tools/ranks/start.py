"""Two ranks of one training, without a word of cuptimem. Planted: rank 1 has a tensor of 4 MiB more."""

import torch
import torch.distributed as dist
from torch import nn


def work():
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters())
    kept = torch.zeros(1 << 20) if dist.get_rank() == 1 else None
    for _ in range(4):
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()
    assert kept is None or kept.numel() == 1 << 20


work()
