"""Carpets knotted row by row: a loom that knows eight thousand knots guesses the ones that moths have eaten."""
import math
from typing import NamedTuple

import torch
from torch import nn


class Shape(NamedTuple):
    knots: int = 8192
    grid: int = 16
    dim: int = 320
    heads: int = 8
    rows: int = 5


class Knotter(nn.Module):
    """From pixels to knots."""

    def __init__(self, knots, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, dim, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(dim, dim, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(dim, dim, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(dim, dim, 1),
        )
        self.book = nn.Parameter(torch.randn(knots, dim))

    def forward(self, pictures):
        z = self.net(pictures).flatten(2).transpose(1, 2)
        distance = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.book.t() + self.book.pow(2).sum(-1)
        return distance.argmin(dim=-1)


class Row(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.before = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.after = nn.LayerNorm(dim)
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        y = self.before(x)
        x = x + self.attention(y, y, y)[0]
        return x + self.narrow(torch.relu(self.widen(self.after(x))))


class Loom(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.knot = nn.Embedding(s.knots + 1, s.dim)
        self.place = nn.Parameter(0.02 * torch.randn(s.grid**2, s.dim))
        self.rows = nn.ModuleList(Row(s.dim, s.heads) for _ in range(s.rows))
        self.norm = nn.LayerNorm(s.dim)
        self.guess = nn.Linear(s.dim, s.knots)

    def forward(self, knots):
        x = self.knot(knots) + self.place
        for row in self.rows:
            x = row(x)
        return self.guess(self.norm(x))


def main():
    s = Shape()
    knotter, loom = Knotter(s.knots).cuda().eval(), Loom(s).cuda()
    optimizer = torch.optim.NAdam(loom.parameters(), lr=4e-4)
    for step in range(5):
        knots = knotter(torch.rand(16, 3, 8 * s.grid, 8 * s.grid, device="cuda"))
        share = math.cos(math.pi / 2 * (step + 0.5) / 5)
        eaten = torch.rand(knots.shape, device="cuda") < share
        guesses = loom(knots.masked_fill(eaten, s.knots))
        wrong = knots.masked_fill(~eaten, -100)
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), wrong.flatten(), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(loom.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        print(step, f"{loss.item():.3f}")


main()
