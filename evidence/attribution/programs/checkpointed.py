"""Deep residual network whose blocks are recomputed in backward."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
recompute = len(sys.argv) < 2


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(64) for _ in range(8)])

    def forward(self, x):
        for block in self.blocks:
            if recompute:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(8):
    x = torch.randn(2048, 64)  #: input
    out = net(x)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
