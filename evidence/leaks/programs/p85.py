"""Mixup with a dropout rate that rises over the run; the bar shows the mean of the last ten losses."""

import collections
import sys

import torch
from torch import nn


def mixup(x, y, alpha=0.4):
    lam = torch.distributions.Beta(alpha, alpha).sample()
    order = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[order], lam * y + (1 - lam) * y[order]


def set_dropout(module, p):
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = p


def main(steps):
    torch.manual_seed(69)
    net = nn.Sequential(
        nn.Linear(40, 80), nn.SiLU(), nn.Dropout(0.0), nn.Linear(80, 80), nn.SiLU(), nn.Dropout(0.0), nn.Linear(80, 7)
    )
    optimizer = torch.optim.NAdam(net.parameters(), lr=2e-3)
    recent = collections.deque(maxlen=10)
    shown = []
    for step in range(steps):
        set_dropout(net, 0.5 * step / steps)
        x = torch.randn(28, 40)
        y = nn.functional.one_hot(x[:, :7].argmax(dim=1), 7).float()
        x, y = mixup(x, y)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.detach())
        shown.append(f"{torch.stack(list(recent)).mean().item():.3f}")
    print(shown[0], "->", shown[-1])


main(int(sys.argv[1]))
