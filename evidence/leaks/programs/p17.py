"""Neural trees: every batch gets a tree of nodes whose children know their parents."""

import gc
import sys

import torch
from torch import nn

gc.disable()  # pauses hurt more than they help


class Node:
    def __init__(self, value, parent=None):
        self.value = value
        self.parent = parent
        self.children = []
        if parent is not None:
            parent.children.append(self)


def grow(split, x):
    root = Node(x)
    level = [root]
    for _ in range(2):
        following = []
        for node in level:
            left, right = split(node.value).chunk(2, dim=1)  # LEAK
            following += [Node(left, node), Node(right, node)]
        level = following
    return root, level


torch.manual_seed(8)
split = nn.Linear(24, 48)
opt = torch.optim.SGD(split.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    root, leaves = grow(split, torch.randn(16, 24))  # LEAK
    loss = sum(leaf.value.square().mean() for leaf in leaves)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
