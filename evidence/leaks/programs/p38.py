"""A little training framework with callbacks that run when everything is done."""

import sys

import torch
from torch import nn


class Deferred:
    def __init__(self):
        self.calls = []

    def add(self, call):
        self.calls.append(call)

    def run(self):
        return [call() for call in self.calls]


def fit(model, steps, deferred):
    opt = torch.optim.NAdam(model.parameters())
    for step in range(steps):
        x = torch.randn(48, 16)  # LEAK
        y = model(x)
        loss = (y - x.flip(1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        deferred.add(lambda x=x, step=step: (step, x.norm().item()))


torch.manual_seed(21)
deferred = Deferred()
fit(nn.Linear(16, 16), int(sys.argv[1]), deferred)
print(deferred.run()[-1])
