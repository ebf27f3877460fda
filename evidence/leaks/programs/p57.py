"""A second-order method with a bounded history, then a fine-tuning phase with another optimizer."""

import sys

import torch
from torch import nn

torch.manual_seed(38)
steps = int(sys.argv[1])
net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
x = torch.randn(60, 10)
y = x.square().mean(dim=1, keepdim=True)
first = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=2, history_size=5)


def closure():
    first.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    return loss


for _ in range(steps // 2):
    first.step(closure)
second = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
for _ in range(steps - steps // 2):
    second.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    second.step()
print(loss.item())
