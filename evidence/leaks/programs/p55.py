"""Objects under way are known to a registry that does not own them, and are told when they go."""

import sys
import weakref

import torch
from torch import nn


class Job:
    registry = weakref.WeakValueDictionary()

    def __init__(self, number, x):
        self.number = number
        self.x = x
        self.registry[number] = self
        weakref.finalize(self, self.close).atexit = False

    def close(self):
        self.x = None


torch.manual_seed(36)
model = nn.Linear(60, 60)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(int(sys.argv[1])):
    job = Job(number, torch.randn(30, 60))  # LEAK
    loss = (model(job.x) - job.x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), len(Job.registry))
