"""Fits a field of points with L-BFGS, which keeps a history of gradients."""

import torch
from torch import nn

torch.manual_seed(0)
points = torch.rand(20000, 3)  #: input
values = torch.sin(points.sum(1, keepdim=True))  #: input
field = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.LBFGS(field.parameters(), max_iter=4, history_size=10)


def closure():
    optimizer.zero_grad()
    out = field(points)
    loss = nn.functional.mse_loss(out, values)
    loss.backward()
    return loss


for step in range(10):
    loss = optimizer.step(closure)
print(loss.item())
