"""A neural ODE in 200 explicit steps, with an activation function of its own: the graph of all steps is alive."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * (s + x * s * (1 - s))


class Field(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.up, self.down = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, h):
        return self.down(Swish.apply(self.up(h)))


field = Field(32, 64)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
for _ in range(15):
    start = torch.randn(256, 32)  #: input
    h = start
    for _ in range(steps):
        h = h + field(h) / steps
    loss = (h - start.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
