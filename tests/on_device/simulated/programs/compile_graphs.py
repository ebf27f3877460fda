"""torch.compile with mode="reduce-overhead": CUDA graph trees, whose pool is set back and forth between replays."""

import torch
from torch import nn

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).cuda()
    model = torch.compile(plain, mode="reduce-overhead")
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    x = torch.randn(512, 512, device="cuda")
    for step in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        check(f"step {step} done")
