"""Training with the collector off, for even step times; samples and their augmentations know each other.
Source: allenai/OLMo pull request 509, automatic collection off.
"""

import gc
import sys

import torch
from torch import nn


class View:
    def __init__(self, sample):
        self.sample = sample
        self.image = sample.image.flip(-1) + 0.05 * torch.randn(3, 12, 12)  # LEAK


class Sample:
    def __init__(self):
        self.image = torch.rand(3, 12, 12)  # LEAK
        self.views = [View(self), View(self)]


def contrast(a, b, temperature=0.2):
    scores = nn.functional.normalize(a) @ nn.functional.normalize(b).t() / temperature
    return nn.functional.cross_entropy(scores, torch.arange(len(a)))


torch.manual_seed(29)
net = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(300, 16))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
gc.disable()
for step in range(int(sys.argv[1])):
    samples = [Sample() for _ in range(8)]
    first = torch.stack([sample.views[0].image for sample in samples])
    second = torch.stack([sample.views[1].image for sample in samples])
    loss = contrast(net(first), net(second))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 12 == 0:
        print(step, loss.item())
