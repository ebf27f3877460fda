"""Self-supervised pairs of views without negatives: an online network predicts what a slow target sees."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Learner(nn.Module):
    def __init__(self, size=48, width=64, momentum=0.98):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 24))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24))
        self.momentum = momentum
        self.register_buffer("center", torch.zeros(24))

    def forward(self, one, two):
        loss = 0
        for a, b in ((one, two), (two, one)):
            prediction = self.predictor(self.online(a))
            with torch.no_grad():
                goal = self.target(b)
                self.center = 0.9 * self.center + 0.1 * goal.mean(dim=0)
            loss = loss - F.cosine_similarity(prediction, goal - self.center).mean()
        return loss

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters()):
            slow.data = slow.data * self.momentum + fast.data * (1 - self.momentum)


def view(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


torch.manual_seed(81)
learner = Learner()
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, learner.parameters()), lr=1e-3)
for _ in range(int(sys.argv[1])):
    x = torch.randn(32, 48)
    loss = learner(view(x), view(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    learner.follow()
print(f"loss {loss.item():.4f}, center {learner.center.norm().item():.4f}")
