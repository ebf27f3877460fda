"""Keeps the pictures on which a net is least certain, starting from a first set that was drawn before."""

import sys

import torch
from torch import nn


def draw(n):
    return [torch.rand(1, 10, 10) for _ in range(n)]


def doubt(net, picture):
    with torch.no_grad():
        p = net(picture).softmax(dim=1)
    return -(p * p.log()).sum().item()


torch.manual_seed(43)
net = nn.Sequential(nn.Flatten(), nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 6))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
pictures = draw(60)
doubts = [doubt(net, picture) for picture in pictures]
for _ in range(int(sys.argv[1])):
    for picture in draw(8):
        least = min(range(len(doubts)), key=doubts.__getitem__)
        value = doubt(net, picture)
        if value > doubts[least]:
            pictures[least], doubts[least] = picture, value
    batch = torch.cat(pictures[:24])
    loss = nn.functional.cross_entropy(net(batch), (batch.flatten(1).sum(dim=1) * 7).long() % 6)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), max(doubts))
