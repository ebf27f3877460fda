"""Trains first, then loads a large test set and goes on with a look at it now and then."""
# STEPS 40

import sys

import torch
from torch import nn

torch.manual_seed(14)
steps = int(sys.argv[1])
net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24))
opt = torch.optim.Adam(net.parameters())
test = None


def load():
    parts = [torch.randn(100, 24) for _ in range(20)]
    return list(parts)


for step in range(steps):
    x = torch.randn(32, 24)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == int(steps * 0.6):
        test = load()
    if test is not None and step % 3 == 0:
        with torch.no_grad():
            score = sum((net(part) - part).square().mean() for part in test) / len(test)
print(score.item())
