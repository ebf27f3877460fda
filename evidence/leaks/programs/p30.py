"""Training that survives bad batches and reports them at the end."""

import sys

import torch
from torch import nn

problems = []


class BadBatch(Exception):
    pass


def check(loss):
    if not torch.isfinite(loss):
        raise BadBatch("loss is not finite")


def step_of(net, opt, x, y):
    prediction = net(x)
    loss = (prediction - y).square().mean()
    check(loss)
    opt.zero_grad()
    loss.backward()
    opt.step()


torch.manual_seed(15)
net = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(int(sys.argv[1])):
    for part in range(2):
        x, y = torch.randn(32, 30), torch.randn(32, 1)
        if part and i % 2:
            x[0, 0] = float("inf")
        try:
            step_of(net, opt, x, y)
        except BadBatch as error:
            problems.append((i, str(error)))
print(f"{len(problems)} bad batches, the first: {problems[0]!r}")
