"""Trainer class with validation every four steps; predictions are collected for a confusion matrix."""

import sys

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(30, 60), nn.ReLU(), nn.Linear(60, 5))
        self.opt = torch.optim.AdamW(self.net.parameters())
        self.predictions = []

    def train_batch(self):
        x, y = torch.randn(16, 30), torch.randint(0, 5, (16,))
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        for _ in range(2):
            x = torch.randn(64, 30)
            self.predictions.append(self.net(x).softmax(dim=1))  # LEAK
        self.net.train()

    def fit(self, steps):
        for step in range(steps):
            self.train_batch()
            if step % 4 == 3:
                self.validate()
        return torch.cat(self.predictions).argmax(dim=1).bincount()


torch.manual_seed(3)
print(Trainer().fit(int(sys.argv[1])))
