"""A decoder of characters and words, its attention written out, AdamW."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mixer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        hidden = torch.ones(t, t, device=x.device).triu(1).bool()
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        y = weights @ v
        return self.out(y.transpose(1, 2).reshape(n, t, c))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixer = Mixer(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Poet(nn.Module):
    def __init__(self, words, width, depth, length):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.place = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, 8) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.flatten())


batch = 8
with torch.device("cuda"):
    poet = Poet(16000, 384, 6, 512)
optimizer = torch.optim.AdamW(poet.parameters(), lr=3e-4)
for step in range(5):
    ids = torch.randint(0, 16000, (batch, 513), device="cuda")
    loss = poet(ids[:, :-1], ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 0:
        print(step, loss.item())
