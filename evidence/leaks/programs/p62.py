"""Learning to learn sine waves: two inner steps with second-order gradients per task."""

import sys

import torch
from torch import nn
from torch.func import functional_call


def sine_task():
    amplitude, phase = torch.rand(1) * 4 + 0.1, torch.rand(1) * 3.14

    def draw(n):
        x = torch.rand(n, 1) * 10 - 5
        return x, amplitude * torch.sin(x + phase)

    return draw


def adapt(net, weights, draw, inner_steps=2, rate=0.01):
    x, y = draw(10)
    for _ in range(inner_steps):
        loss = nn.functional.mse_loss(functional_call(net, weights, (x,)), y)
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: w - rate * g for (name, w), g in zip(weights.items(), grads)}
    return weights


torch.manual_seed(75)
net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-3)
adapted = {}
for step in range(int(sys.argv[1])):
    outer = 0.0
    for task in range(3):
        draw = sine_task()
        adapted[task] = adapt(net, dict(net.named_parameters()), draw)
        x, y = draw(20)
        outer = outer + nn.functional.mse_loss(functional_call(net, adapted[task], (x,)), y)
    meta.zero_grad()
    outer.backward()
    meta.step()
print("outer loss", outer.item(), "tasks", len(adapted))
