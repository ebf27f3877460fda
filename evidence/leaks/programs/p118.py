"""Continual learning: each experience gets an optimizer of its own, and a frozen copy of the model guards the old ones.
Source: ContinualAI/avalanche, the LwF plugin and the templates that reset the optimizer.
"""
# STEPS 48

import copy
import sys

import torch
from torch import nn

LENGTH = 6


class Strategy:
    def __init__(self, model):
        self.model = model
        self.before = None
        self.optimizer = None

    def train_experience(self, number):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        centre = torch.randn(18)
        for _ in range(LENGTH):
            y = torch.randint(0, 6, (20,))
            x = torch.randn(20, 18) * 0.3 + centre * (y[:, None] + 1)
            self.optimizer.zero_grad()
            logits = self.model(x)
            loss = nn.functional.cross_entropy(logits, y) + self.penalty(x, logits)
            loss.backward()
            self.optimizer.step()
        self.before = copy.deepcopy(self.model).eval().requires_grad_(False)
        return loss.item()

    def penalty(self, x, logits, temperature=2.0):
        if self.before is None:
            return 0.0
        with torch.no_grad():
            old = self.before(x)
        soft = nn.functional.softmax
        return nn.functional.kl_div(
            nn.functional.log_softmax(logits / temperature, dim=1),
            soft(old / temperature, dim=1),
            reduction="batchmean",
        )


torch.manual_seed(25)
strategy = Strategy(nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 6)))
for number in range(int(sys.argv[1]) // LENGTH):
    print(f"experience {number}: {strategy.train_experience(number):.4f}")
