"""Parses sentences into graphs whose nodes know each other; the youngest garbage is collected after each update.
Source: the garbage-collection handler of Project-MONAI/MONAI, monai/handlers/garbage_collector.py.
"""

import gc
import sys

import torch
from torch import nn


class Word:
    def __init__(self, vector):
        self.vector = vector
        self.head = None
        self.children = []


class Parser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score = nn.Embedding(80, 20), nn.Bilinear(20, 20, 1)

    def tree(self, tokens):
        words = [Word(self.embed(token)) for token in tokens]
        for left, right in zip(words, words[1:], strict=False):
            left.children.append(right)
            right.head = left
        return words

    def forward(self, tokens):
        words = self.tree(tokens)
        pairs = [(child.head.vector, child.vector) for child in words if child.head]
        heads, children = zip(*pairs, strict=True)
        return self.score(torch.stack(heads), torch.stack(children)).squeeze(1)


class GarbageCollector:
    def __init__(self, generation):
        self.generation = generation

    def iteration_completed(self):
        gc.collect(self.generation)


torch.manual_seed(27)
parser = Parser()
opt = torch.optim.Adam(parser.parameters(), lr=1e-3)
handler = GarbageCollector(0)
for step in range(int(sys.argv[1])):
    tokens = torch.randint(0, 80, (9,))
    loss = nn.functional.soft_margin_loss(parser(tokens), (tokens[1:] > tokens[:-1]) * 2.0 - 1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    handler.iteration_completed()
    if step % 12 == 0:
        print(step, loss.item())
