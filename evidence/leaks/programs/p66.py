"""Lookahead around Adam: slow weights follow every fifth step."""

import sys

import torch
from torch import nn


class Lookahead:
    def __init__(self, inner, k=5, alpha=0.5):
        self.inner, self.k, self.alpha = inner, k, alpha
        self.count = 0
        self.slow = {}

    def parameters(self):
        for group in self.inner.param_groups:
            yield from group["params"]

    def zero_grad(self):
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self):
        if not self.slow:
            self.slow = {p: p.detach().clone() for p in self.parameters()}
        self.inner.step()
        self.count += 1
        if self.count % self.k == 0:
            for p in self.parameters():
                self.slow[p] = self.slow[p] + self.alpha * (p - self.slow[p])
                p.copy_(self.slow[p])


torch.manual_seed(71)
field = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = Lookahead(torch.optim.Adam(field.parameters(), lr=5e-3))
best = None
for step in range(int(sys.argv[1])):
    points = torch.rand(128, 2) * 2 - 1
    height = torch.sin(3 * points[:, :1]) * points[:, 1:]
    loss = (field(points) - height).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if best is None or loss < best:
        best = loss
print("best", best.item())
