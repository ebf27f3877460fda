"""An encoder with activation checkpointing, gradients accumulated over four small batches, RMSprop."""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Encoder(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x.mean(1))


def main(check: Callable[[str], None] = lambda name: None, steps: int = 8, accumulation: int = 4) -> float:
    torch.manual_seed(6)
    model = Encoder()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    check("model")
    total = 0.0
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulation):
            x, y = torch.randn(8, 20, 32), torch.randint(5, (8,))
            loss = nn.functional.cross_entropy(model(x), y) / accumulation
            check("forward")
            loss.backward()
            check("backward")
            total += loss.item()
        optimizer.step()
        check("step")
    return total


if __name__ == "__main__":
    print(f"{main():.4f}")
