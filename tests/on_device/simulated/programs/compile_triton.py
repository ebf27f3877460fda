"""torch.compile: Inductor's plans and Triton's kernels, forward and backward, with two shapes."""

import torch
from torch import nn

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.LayerNorm(512)).cuda()
    model = torch.compile(plain)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    for step in range(4):
        x = torch.randn(256 if step < 2 else 384, 512, device="cuda")
        loss = model(x).square().mean()
        check(f"step {step}, forward done")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        check(f"step {step} done", quiet=True)
