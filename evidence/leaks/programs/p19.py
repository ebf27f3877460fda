"""Training with hard example mining: batches with a high loss are looked at again after training."""

import sys

import torch
from torch import nn


def batches(n):
    generator = torch.Generator().manual_seed(9)
    for _ in range(n):
        scale = float(torch.rand(1, generator=generator)) * 3
        yield torch.randn(20, 12, generator=generator) * scale, torch.randn(20, 1, generator=generator)  # LEAK


def run(n):
    net = nn.Linear(12, 1)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    again = []
    for x, y in batches(n):
        loss = (net(x) - y).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if loss.item() > 1.0:
            again.append((x, y))
    print(f"{len(again)} of {n} batches are hard")


torch.manual_seed(9)
run(int(sys.argv[1]))
