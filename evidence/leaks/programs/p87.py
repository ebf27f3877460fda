"""A range test finds the learning rate in the first steps, then the real training begins from the old weights."""

import copy
import sys

import torch
from torch import nn


def batch():
    x = torch.randn(48, 25)
    return x, x[:, :5].prod(dim=1, keepdim=True).tanh()


def update(net, optimizer):
    x, y = batch()
    loss = nn.functional.smooth_l1_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def find_rate(net, trials, low=1e-5, high=1.0):
    saved = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=low, momentum=0.9)
    curve = []
    for i in range(trials):
        rate = low * (high / low) ** (i / (trials - 1))
        for group in optimizer.param_groups:
            group["lr"] = rate
        curve.append((update(net, optimizer), rate))
    net.load_state_dict(saved)
    return min(curve)[1] / 10


torch.manual_seed(79)
steps = int(sys.argv[1])
net = nn.Sequential(nn.Linear(25, 70), nn.LeakyReLU(), nn.Linear(70, 1))
trials = max(8, steps // 4)
rate = find_rate(net, trials)
optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
losses = [update(net, optimizer) for _ in range(steps - trials)]
print(f"rate {rate:.2e}, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
