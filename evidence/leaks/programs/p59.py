"""Mixture of experts with a penalty for uneven load; the worst loss of the run is reported."""

import sys

import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self, experts=3):
        super().__init__()
        self.gate = nn.Linear(12, experts)
        self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(experts))
        self.load = None

    def forward(self, x):
        share = self.gate(x).softmax(dim=1)  # LEAK
        self.load = share.mean(dim=0)  # LEAK
        return sum(share[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))  # LEAK


torch.manual_seed(40)
net = Mixture()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
worst = torch.tensor(0.0)
for _ in range(int(sys.argv[1])):
    x = torch.randn(24, 12)
    error = nn.functional.mse_loss(net(x), x.sort(dim=1).values)  # LEAK
    loss = error + 0.1 * net.load.square().sum()  # LEAK
    opt.zero_grad()
    loss.backward()
    opt.step()
    worst = torch.maximum(worst, loss)  # LEAK
print(worst.item())
