"""Smoothed loss for the progress line, the way progress bars do it."""

import sys

import torch
from torch import nn


class Smooth:
    def __init__(self, beta=0.98):
        self.beta, self.value, self.weight = beta, 0.0, 0.0

    def add(self, value):
        self.value = self.beta * self.value + (1 - self.beta) * value  # LEAK
        self.weight = self.beta * self.weight + (1 - self.beta)

    def __str__(self):
        return f"{float(self.value) / self.weight:.3f}"


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(100, 24)
        self.classify = nn.Linear(24, 2)

    def forward(self, tokens):
        return self.classify(self.embedding(tokens))  # LEAK


torch.manual_seed(29)
net, smooth = Text(), Smooth()
opt = torch.optim.Adam(net.parameters())
for step in range(int(sys.argv[1])):
    tokens = torch.randint(0, 100, (16, 12))
    y = (tokens.float().mean(dim=1) > 50).long()
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(tokens), y)  # LEAK
    loss.backward()
    opt.step()
    smooth.add(loss)
    if step % 8 == 0:
        print(step, smooth)
