"""Segmentation-like training; a metrics object collects what evaluation needs."""

import sys

import torch
from torch import nn


class Metrics:
    def __init__(self):
        self.targets = []
        self.scores = []

    def update(self, scores, targets):
        self.scores.append(scores.sigmoid())  # LEAK
        self.targets.append(targets)

    def compute(self):
        hits = (torch.cat(self.scores) > 0.5) == (torch.cat(self.targets) > 0.5)
        return hits.float().mean().item()


def sample(n):
    x = torch.randn(n, 1, 12, 12)
    return x, (x > 0).float()  # LEAK


def evaluate(net, metrics):
    net.eval()
    with torch.inference_mode():
        for _ in range(3):
            x, y = sample(8)
            metrics.update(net(x), y)
    net.train()
    return metrics.compute()


def main(steps):
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    loss_of = nn.BCEWithLogitsLoss()
    metrics = Metrics()
    for step in range(steps):
        x, y = sample(4)
        opt.zero_grad()
        loss_of(net(x), y).backward()
        opt.step()
        if (step + 1) % 3 == 0:
            print(step, evaluate(net, metrics))


torch.manual_seed(11)
main(int(sys.argv[1]))
