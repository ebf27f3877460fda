"""Freezes what exists before the loop, so that collections are short; episodes refer to themselves through closures.
Source: pytorch/pytorch issue 95462, which suggests gc.freeze before the loop.
"""

import gc
import sys

import torch
from torch import nn


class Episode:
    def __init__(self, length):
        self.states = torch.randn(length, 6).cumsum(dim=0)
        self.reward = lambda: -self.states.square().sum(dim=1)

    def returns(self, discount=0.9):
        total, returns = 0.0, []
        for reward in self.reward().tolist()[::-1]:
            total = reward + discount * total
            returns.insert(0, total)
        return torch.tensor(returns)


torch.manual_seed(30)
value = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 1))
opt = torch.optim.RMSprop(value.parameters(), lr=1e-3)
opt.zero_grad()
value(torch.zeros(1, 6)).sum().backward()
opt.step()
gc.collect()
gc.freeze()
for number in range(int(sys.argv[1])):
    episode = Episode(20)
    loss = nn.functional.huber_loss(value(episode.states).squeeze(1), episode.returns())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if number % 10 == 0:
        print(number, loss.item())
