"""Noise schedules for a denoiser, computed on demand and remembered."""

import sys

import torch
from torch import nn

tables = {}


def schedule(t, width):
    if t not in tables:
        ramp = torch.linspace(0, 1, width)
        tables[t] = torch.sin(ramp * (t + 1)).repeat(4, 1)  # LEAK
    return tables[t]


def main():
    steps = int(sys.argv[1])
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(200, 64), nn.SiLU(), nn.Linear(64, 200))
    opt = torch.optim.Adam(net.parameters())
    for t in range(steps):
        clean = torch.randn(4, 200)
        noisy = clean + schedule(t, 200)
        loss = (net(noisy) - clean).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(len(tables), loss.item())


main()
