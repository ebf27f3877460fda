"""Faded murals made sharp: residual blocks and pixels that are shuffled to twice the size; leaky units, as such nets have."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + 0.2 * self.second(F.leaky_relu(self.first(x), 0.2))


class Sharper(nn.Module):
    def __init__(self, width=48, depth=6):
        super().__init__()
        self.begin = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.end = nn.Conv2d(width, 12, 3, padding=1)

    def forward(self, x):
        x = self.begin(x)
        for block in self.blocks:
            x = block(x)
        return F.pixel_shuffle(self.end(x), 2)


sharper = Sharper().cuda()
optimizer = torch.optim.Adam(sharper.parameters(), lr=2e-4)
for _ in range(4):
    sharp = torch.rand(6, 3, 192, 192).cuda()
    faded = F.avg_pool2d(sharp, 2)
    loss = F.l1_loss(sharper(faded), sharp)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
