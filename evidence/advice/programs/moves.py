"""Moves in a game: a tree of positions, parents and children, built anew for each move, read by a small net."""

import torch
from torch import nn


class Position:
    def __init__(self, board, parent=None):
        self.board, self.parent, self.children = board, parent, []

    def grow(self, net, wide):
        with torch.no_grad():
            worth = net(self.board)
        for _ in range(wide):
            child = Position(self.board + worth.mean(), self)
            self.children.append(child)
        return self.children


with torch.device("cuda"):
    net = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1, 3, padding=1))
rule = torch.optim.AdamW(net.parameters())
for move in range(20):
    root = Position(torch.rand(32, 32, 64, 64, device="cuda"))
    for child in root.grow(net, 3):
        child.grow(net, 2)
    worth = net(root.board).mean()
    rule.zero_grad()
    worth.backward()
    rule.step()
