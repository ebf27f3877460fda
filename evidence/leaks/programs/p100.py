"""Adapts to a stream of tasks with differentiable updates: each new weight is a function of the one before.
Source: facebookresearch/higher, the unrolled inner loop of its differentiable optimizers.
"""

import sys

import torch
from torch import nn


def forward(weights, x):
    w1, b1, w2, b2 = weights
    return torch.tanh(x @ w1 + b1) @ w2 + b2  # LEAK


def update(weights, loss, lr=0.05):
    grads = torch.autograd.grad(loss, weights, create_graph=True)  # LEAK
    return [w - lr * g for w, g in zip(weights, grads, strict=True)]  # LEAK


def task(generator):
    phase = torch.rand((), generator=generator) * 3
    x = torch.rand(10, 1, generator=generator) * 10 - 5
    return x, torch.sin(x + phase)


torch.manual_seed(7)
generator = torch.Generator().manual_seed(7)
slow = [
    nn.Parameter(torch.randn(1, 32) * 0.5),
    nn.Parameter(torch.zeros(32)),
    nn.Parameter(torch.randn(32, 1) * 0.2),
    nn.Parameter(torch.zeros(1)),
]
fast = list(slow)
seen = 0.0
for step in range(int(sys.argv[1])):
    x, y = task(generator)
    loss = (forward(fast, x) - y).square().mean()  # LEAK
    seen = 0.9 * seen + 0.1 * loss.item()
    fast = update(fast, loss)
    if step % 12 == 11:
        print(step, round(seen, 4))
