"""Predictions of all batches are collected for a confusion matrix, and nothing clears them."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
detach = len(sys.argv) > 1


class Run:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(100, 400), nn.Tanh(), nn.Linear(400, 200))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.predictions = []

    def step(self, x, y):
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.predictions.append(out.argmax(1) if detach else out)


run = Run()
for _ in range(40):
    run.step(torch.randn(128, 100), torch.randint(0, 200, (128,)))  #: input
