"""Weights are saved every five steps to average them afterwards."""
# STEPS 45

import copy
import sys

import torch
from torch import nn

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(40, 80), nn.GELU(), nn.Linear(80, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
saved = []
for step in range(1, int(sys.argv[1]) + 1):
    x, y = torch.randn(32, 40), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        saved.append(copy.deepcopy(model.state_dict()))  # LEAK
average = {name: sum(s[name] for s in saved) / len(saved) for name in saved[0]}
model.load_state_dict(average)
print(len(saved))
