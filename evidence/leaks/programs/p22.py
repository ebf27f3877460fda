"""Weights of the best step so far and of the last three checks are kept."""
# STEPS 40

import copy
import sys

import torch
from torch import nn

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(40, 80), nn.GELU(), nn.Linear(80, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recent, best, best_loss = [], None, float("inf")
x, y = torch.randn(64, 40), torch.randint(0, 10, (64,))
for step in range(1, int(sys.argv[1]) + 1):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < best_loss:
        best_loss = loss.item()
        best = copy.deepcopy(model.state_dict())
    if step % 4 == 0:
        recent.append({name: value.clone() for name, value in model.state_dict().items()})
        recent = recent[-3:]
model.load_state_dict(best)
print(best_loss, len(recent))
