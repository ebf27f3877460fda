"""How surprising are the words that a family left behind, told page by page to an attentive listener."""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Sizes(NamedTuple):
    vocab: int = 12000
    dim: int = 384
    heads: int = 8
    depth: int = 4
    window: int = 512
    stride: int = 256


def slopes(heads):
    return np.array([2 ** (-8 * (i + 1) / heads) for i in range(heads)])


def distances(heads, length):
    steps = np.arange(length)
    table = -np.abs(steps[None, :] - steps[:, None])[None] * slopes(heads)[:, None, None]
    table[:, np.triu_indices(length, 1)[0], np.triu_indices(length, 1)[1]] = -1e9
    return torch.from_numpy(table)


class Listen(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads = s.heads
        self.norm = nn.LayerNorm(s.dim)
        self.inner = nn.Linear(s.dim, 3 * s.dim)
        self.outer = nn.Linear(s.dim, s.dim)
        self.think = nn.Sequential(nn.LayerNorm(s.dim), nn.Linear(s.dim, 4 * s.dim), nn.GELU(), nn.Linear(4 * s.dim, s.dim))

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.inner(self.norm(x)).chunk(3, dim=-1))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d // self.heads)
        weights = torch.softmax(scores + bias, dim=-1).to(v.dtype)
        x = x + self.outer(torch.matmul(weights, v).transpose(1, 2).reshape(b, t, d))
        return x + self.think(x)


class Listener(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.words = nn.Embedding(s.vocab, s.dim)
        self.layers = nn.Sequential(*[Listen(s) for _ in range(s.depth)])
        self.last = nn.LayerNorm(s.dim)
        self.out = nn.Linear(s.dim, s.vocab, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        bias = distances(self.s.heads, ids.shape[1]).to(ids.device)
        bias = bias.unsqueeze(0).repeat(ids.shape[0], 1, 1, 1)
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, bias)
        return self.out(self.last(x))


def pages(text, s, together=8):
    starts = range(0, len(text) - s.window, s.stride)
    windows = torch.stack([text[start : start + s.window + 1] for start in starts])
    return windows.split(together)


@torch.no_grad()
def perplexity(model, text, s):
    scores = []
    for group in pages(text, s):
        group = group.to("cuda")
        logits = model(group[:, :-1])
        logp = F.log_softmax(logits, dim=-1)
        token = logp.gather(2, group[:, 1:, None]).squeeze(2)
        scores.append(token[:, s.stride :])
    return math.exp(min(20.0, -torch.cat(scores).mean().item()))


sizes = Sizes()
listener = Listener(sizes).cuda().eval()
for keeper in ("grandfather", "aunt"):
    left = torch.randint(0, sizes.vocab, (sizes.stride * 25 + 1,))
    print(keeper, perplexity(listener, left, sizes))
