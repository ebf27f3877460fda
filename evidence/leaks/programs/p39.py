"""Distances between sets of points, memoised, inside a training loop."""

import functools
import sys

import torch
from torch import nn


@functools.lru_cache(maxsize=None)
def spread(points):
    return torch.cdist(points, points).mean()  # LEAK


class Cloud(nn.Module):
    def __init__(self):
        super().__init__()
        self.move = nn.Linear(3, 3)

    def forward(self, points):
        return self.move(points)


torch.manual_seed(22)
net = Cloud()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    points = torch.rand(40, 3)  # LEAK
    loss = (net(points) / spread(points)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(spread.cache_info())
