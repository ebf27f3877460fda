"""A small convolutional net whose activations are watched through forward hooks."""

import sys

import torch
from torch import nn

seen = {}


def watch(name):
    def hook(module, inputs, output):
        seen[name] = output

    return hook


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv2d(a, b, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu()


torch.manual_seed(6)
net = nn.Sequential(Block(3, 8), nn.MaxPool2d(2), Block(8, 8), nn.Flatten(), nn.Linear(8 * 64, 4))
net[0].register_forward_hook(watch("low"))
net[2].register_forward_hook(watch("high"))
opt = torch.optim.Adam(net.parameters())
for _ in range(int(sys.argv[1])):
    images = torch.randn(4, 3, 16, 16)
    loss = nn.functional.cross_entropy(net(images), torch.randint(0, 4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print({name: output.abs().mean().item() for name, output in seen.items()})
