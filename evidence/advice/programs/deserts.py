"""Deserts photographed from far above, and the finer picture that a sharper eye would have had."""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import vgg16


@dataclass
class Config:
    scale: int = 4
    patch: int = 48
    features: int = 64
    blocks: int = 10
    batch_size: int = 12
    steps: int = 7
    weight: float = 0.06
    device: str = "cuda"


class ResidualBlock(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(n, n, 3, 1, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 1, 1))

    def forward(self, x):
        return x + 0.1 * self.body(x)


class Sharpener(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        n = c.features
        self.first = nn.Conv2d(3, n, 3, 1, 1)
        self.body = nn.Sequential(*[ResidualBlock(n) for _ in range(c.blocks)])
        up = []
        for _ in range(c.scale // 2):
            up += [nn.Conv2d(n, 4 * n, 3, 1, 1), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(*up, nn.Conv2d(n, 3, 3, 1, 1))

    def forward(self, x):
        x = self.first(x)
        return self.tail(x + self.body(x))


class Likeness(nn.Module):
    """How alike two pictures look to a network that has seen many."""

    def __init__(self):
        super().__init__()
        self.features = vgg16(weights=None).features[:16].eval()

    def forward(self, ours, theirs):
        a = self.features(ours)
        b = self.features(theirs)
        return nn.functional.l1_loss(a, b)


class Patches(Dataset):
    def __init__(self, c: Config):
        self.c = c

    def __len__(self):
        return self.c.steps * self.c.batch_size

    def __getitem__(self, i):
        big = torch.rand(3, self.c.patch * self.c.scale, self.c.patch * self.c.scale)
        return nn.functional.avg_pool2d(big, self.c.scale), big


@dataclass
class Trainer:
    c: Config
    quality: list = field(default_factory=list)

    def __post_init__(self):
        self.net = Sharpener(self.c).to(self.c.device)
        self.likeness = Likeness().to(self.c.device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4, betas=(0.9, 0.99))

    def step(self, small, big):
        small, big = small.to(self.c.device), big.to(self.c.device)
        ours = self.net(small)
        loss = nn.functional.l1_loss(ours, big) + self.c.weight * self.likeness(ours, big)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.quality.append(-10 * torch.log10(((ours - big) ** 2).mean()))

    def run(self):
        self.net.train()
        for small, big in DataLoader(Patches(self.c), self.c.batch_size):
            self.step(small, big)
        print("dB:", torch.stack(self.quality).mean().item())


if __name__ == "__main__":
    Trainer(Config()).run()
