"""Dunes of sand that move: a conv net goes on from its own picture for some hours, all hours are compared with the truth."""

import torch
from torch import nn


class Wind(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.into = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, sand, wind):
        x = torch.tanh(self.into(torch.cat([sand, wind], dim=1)))
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return sand + self.out(x)


net = Wind().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    truth = torch.rand(7, 4, 1, 96, 96, device="cuda")
    wind = torch.rand(6, 4, 1, 96, 96, device="cuda")
    sand, hours = truth[0], []
    for hour in range(6):
        sand = net(sand, wind[hour])
        hours.append((sand - truth[hour + 1]).abs().mean(dim=(1, 2, 3)))
    loss = torch.stack(hours).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
