"""A net that colours tiles: down, up, and a bridge between, with leaky units."""

import torch
import torch.nn as nn


class Pair(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.LeakyReLU(0.1),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.LeakyReLU(0.1),
        )

    def forward(self, x):
        return self.body(x)


class Tiles(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.down = nn.ModuleList([Pair(3, width), Pair(width, 2 * width), Pair(2 * width, 4 * width)])
        self.middle = Pair(4 * width, 8 * width)
        self.up = nn.ModuleList([Pair(12 * width, 4 * width), Pair(6 * width, 2 * width), Pair(3 * width, width)])
        self.last = nn.Conv2d(width, 3, 1)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        bridges = []
        for pair in self.down:
            x = pair(x)
            bridges.append(x)
            x = self.pool(x)
        x = self.middle(x)
        for pair in self.up:
            x = torch.cat([bridges.pop(), self.grow(x)], dim=1)
            x = pair(x)
        return self.last(x)


def main():
    size = 4
    net = Tiles().to("cuda")
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        picture = torch.rand(size, 3, 192, 192, device="cuda")
        loss = (net(picture) - picture).abs().mean()
        loss.backward()
        optimizer.step()


main()
