"""Tabular model with a preprocessing pipeline made of small functions."""

import sys

import torch
from torch import nn


def whiten(x, moments=[]):
    mean, std = x.mean(dim=0), x.std(dim=0) + 1e-6  # LEAK
    moments.append((mean, std))
    return (x - mean) / std


def clip(x):
    return x.clamp(-3, 3)


def polynomial(x):
    return torch.cat([x, x * x], dim=1)


def prepare(x, stages=(whiten, clip, polynomial)):
    for stage in stages:
        x = stage(x)
    return x


class Table:
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        while True:
            yield prepare(torch.rand(self.rows, 50)), torch.rand(self.rows, 1)


torch.manual_seed(12)
model = nn.Sequential(nn.Linear(100, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adagrad(model.parameters())
for step, (x, y) in zip(range(int(sys.argv[1])), Table(40)):
    optimizer.zero_grad()
    loss = nn.functional.smooth_l1_loss(model(x), y)
    loss.backward()
    optimizer.step()
print(loss.item())
