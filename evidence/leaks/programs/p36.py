"""Each task gets an optimizer of its own; they are kept so that training can go on later."""

import sys

import torch
from torch import nn

torch.manual_seed(20)
trunk = nn.Linear(20, 40)
head = nn.Linear(40, 3)
optimizers = {}


def adapt(task):
    optimizer = torch.optim.Adam(trunk.parameters(), lr=1e-3 / (task + 1))
    optimizers[task] = optimizer
    x, y = torch.randn(16, 20), torch.randint(0, 3, (16,))
    loss = nn.functional.cross_entropy(head(trunk(x).relu()), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # LEAK
    return loss.item()


for task in range(int(sys.argv[1])):
    last = adapt(task)
print(last, len(optimizers))
