"""A training loop that keeps something in every step: features that a hook gathers, and a sum of losses.

cuptimem run -o leak.cmem examples/leak.py
cuptimem leaks leak.cmem
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.body(x)
        scores: torch.Tensor = self.head(features)
        return scores


class Probe:
    """Keeps what a module returns, to plot it later."""

    def __init__(self, module: nn.Module) -> None:
        self.seen: list[torch.Tensor] = []
        module.register_forward_hook(self.keep)

    def keep(self, module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        self.seen.append(output.detach().clone())


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
steps = parser.parse_args().steps

torch.manual_seed(0)
model = Classifier()
probe = Probe(model.body)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
total = torch.zeros(())
for _ in range(steps):
    images, labels = torch.randn(256, 64), torch.randint(10, (256,))
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = total + loss
print(f"mean loss {total.item() / steps:.3f}")
