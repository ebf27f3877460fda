"""Trains first, then also gathers embeddings for a search index."""
# STEPS 40

import sys

import torch
from torch import nn

torch.manual_seed(14)
steps = int(sys.argv[1])
warm = int(steps * 0.45)
net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24))
opt = torch.optim.Adam(net.parameters())
index = {}


def embed(x):
    with torch.no_grad():
        return net(x)  # LEAK


for step in range(steps):
    x = torch.randn(32, 24)
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step >= warm:
        index[step] = embed(x)
print(len(index))
