"""Quantised activations with a straight-through gradient; the rounding errors are reported layer by layer."""

import sys

import torch
from torch import nn

_calls = []


class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        q = torch.round(x * levels) / levels
        ctx.error = x - q  # LEAK
        _calls.append(ctx)  # LEAK
        return q

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 4)

    def forward(self, x):
        h = torch.sigmoid(self.first(x))  # LEAK
        h = Quantise.apply(h, 16)  # LEAK
        h = torch.sigmoid(self.second(h))  # LEAK
        h = Quantise.apply(h, 8)  # LEAK
        return self.last(h)


torch.manual_seed(66)
net = QuantNet()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    x = torch.randn(24, 16)
    loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(dim=1))
    opt.zero_grad()
    loss.backward()
    opt.step()
errors = [call.error.abs().mean().item() for call in _calls]
print("first layer", sum(errors[::2]) / len(errors[::2]), "second", sum(errors[1::2]) / len(errors[1::2]))
