"""A dataclass per step, in a list of an object: loss, step's scores and the norm of the gradients."""

from dataclasses import dataclass, field

import torch
from torch import nn

torch.manual_seed(0)


@dataclass
class Record:
    step: int
    loss: float
    scores: torch.Tensor


@dataclass
class History:
    records: list = field(default_factory=list)

    def add(self, step, loss, scores):
        self.records.append(Record(step, loss.item(), scores.detach().clone()))  #: kept


class Experiment:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1000))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.history = History()

    def run(self, steps):
        for step in range(steps):
            x = torch.randn(128, 64)  #: input
            y = torch.randint(0, 1000, (128,))  #: input
            scores = self.model(x)
            loss = nn.functional.cross_entropy(scores, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.add(step, loss, scores)


experiment = Experiment()
experiment.run(60)
