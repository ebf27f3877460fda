"""Solves a Poisson equation with a neural net; later in the run, points with a large residual are added."""

import random
import sys

import torch
from torch import nn


def residual(net, x):
    x = x.detach().requires_grad_(True)
    u = net(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return ddu + torch.sin(3.0 * x)


def refine(net, pool):
    candidates = torch.rand(200, 1) * 6.28
    worst = residual(net, candidates).detach().abs().squeeze(1).topk(50).indices
    pool.append(candidates[worst])  # LEAK


random.seed(80)
torch.manual_seed(80)
steps = int(sys.argv[1])
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
pool = [torch.rand(50, 1) * 6.28 for _ in range(6)]
edges = torch.tensor([[0.0], [6.28]])
for step in range(steps):
    if step >= 0.4 * steps:
        refine(net, pool)
    inner = torch.cat(random.sample(pool, 4))
    loss = residual(net, inner).square().mean() + net(edges).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{sum(len(p) for p in pool)} points, loss {loss.item():.4f}")
