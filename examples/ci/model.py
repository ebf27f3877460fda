"""A small encoder, and a step of its training: what the tests beside it hold to a budget."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 256


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.relu(self.up(x)))


def make_model() -> nn.Module:
    return nn.Sequential(Block(WIDTH), Block(WIDTH), nn.Linear(WIDTH, 16))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
