"""Masks and position codes, memoised, inside a small transformer trained on varying lengths."""

import functools
import random
import sys

import torch
from torch import nn


@functools.lru_cache(maxsize=16)
def mask(length):
    return torch.triu(torch.full((length, length), float("-inf")), diagonal=1)


@functools.lru_cache(maxsize=16)
def positions(length, width):
    angles = torch.arange(length).unsqueeze(1) / 10000 ** (torch.arange(width) / width)
    return angles.sin()


class Tiny(nn.Module):
    def __init__(self, vocab=40, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, dropout=0.0)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embed(tokens) + positions(length, 32)
        return self.out(self.layer(x, src_mask=mask(length)))


random.seed(23)
torch.manual_seed(23)
net = Tiny()
opt = torch.optim.AdamW(net.parameters())
for _ in range(int(sys.argv[1])):
    tokens = torch.randint(0, 40, (4, random.choice([8, 12, 16, 20, 24])))
    logits = net(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), mask.cache_info().currsize)
