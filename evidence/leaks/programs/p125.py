"""Watches the activations of a residual net through forward hooks; statistics are drawn from them at the end.
Source: pytorch/tutorials, forward hooks as in "Visualizing Gradients", and a common answer on hooks in its forum.
"""

import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        inner = self.second(self.first(x).relu())  # LEAK
        return (x + inner).relu()  # LEAK


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.blocks = nn.Sequential(Block(6), Block(6))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.blocks(self.stem(x))  # LEAK
        return self.head(x.mean(dim=(2, 3)))


class Watch:
    def __init__(self, net):
        self.outputs = {}
        for name, module in net.named_modules():
            if isinstance(module, Block):
                module.register_forward_hook(self.hook(name))

    def hook(self, name):
        def keep(module, inputs, output):
            self.outputs.setdefault(name, []).append(output)  # LEAK

        return keep


torch.manual_seed(32)
net = Net()
watch = Watch(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(int(sys.argv[1])):
    x, y = torch.rand(4, 3, 10, 10), torch.randint(0, 5, (4,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
for name, outputs in watch.outputs.items():
    print(name, outputs[0].mean().item(), outputs[-1].mean().item())
