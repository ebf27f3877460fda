"""Castles seen from a kite: every pixel is wall, roof, moat, garden or one of the others."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    side: int = 256
    classes: int = 12
    width: int = 32
    rows: int = 6
    steps: int = 4
    rows_at_test: int = 6
    tests: int = 40
    lr: float = 1e-3


def conv_block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        sizes = [width * 2**i for i in range(4)]
        self.down = nn.ModuleList(conv_block(i, o) for i, o in zip([3, *sizes], sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, stride=2) for i, o in zip(sizes, sizes[1:]))
        self.join = nn.ModuleList(conv_block(2 * i, i) for i in sizes[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(reversed(self.up), reversed(self.join)):
            x = join(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


def kites(count, s):
    return torch.rand(count, 3, s.side, s.side), torch.randint(0, s.classes, (count, s.side, s.side))


def dice(logits, masks, classes):
    p = logits.softmax(dim=1)
    t = F.one_hot(masks, classes).permute(0, 3, 1, 2).float()
    return 1 - (2 * (p * t).sum((2, 3)) / ((p + t).sum((2, 3)) + 1e-6)).mean()


@torch.no_grad()
def test(model, s):
    model.eval()
    every, truth = [], []
    for _ in range(s.tests):
        x, y = kites(s.rows_at_test, s)
        every.append(model(x.cuda()))
        truth.append(y.byte())
    guess = torch.cat(every).argmax(1).byte().cpu()
    return (guess == torch.cat(truth)).float().mean().item()


def main(s=Settings()):
    model = UNet(s.classes, s.width).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    model.train()
    for step in range(s.steps):
        x, y = kites(s.rows, s)
        x, y = x.cuda(), y.cuda()
        logits = model(x)
        loss = F.cross_entropy(logits, y) + dice(logits, y, s.classes)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 4))
    print("right:", test(model, s))


main()
