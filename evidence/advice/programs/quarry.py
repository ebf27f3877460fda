"""Stones by weight and colour: a small net learns, and every second round a longer test is read; means are kept."""

import torch
from torch import nn

net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.SiLU())], nn.Linear(512, 4)).cuda()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
means = []


def test(rows=24000):
    net.eval()
    right = 0.0
    for _ in range(2):
        stones = torch.rand(rows, 512, device="cuda")
        answer = net(stones)
        right += (answer.argmax(1) == 0).float().mean().item()
    net.train()
    return right / 2


for turn in range(4):
    stones = torch.rand(2048, 512, device="cuda")
    error = nn.functional.cross_entropy(net(stones), torch.zeros(2048, dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    error.backward()
    optimizer.step()
    if turn % 2:
        means.append(test())
