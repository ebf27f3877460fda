"""A character model with attention written out."""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
length = int(sys.argv[1]) if len(sys.argv) > 1 else 128


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        weights = F.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=96, dim=128, depth=3):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, dim)
        self.places = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, 4) for _ in range(depth))
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
text = torch.randint(0, 96, (20000,))  #: input
for step in range(10):
    at = torch.randint(0, len(text) - length - 1, (8,))  #: input
    x = torch.stack([text[i : i + length] for i in at])  #: input
    y = torch.stack([text[i + 1 : i + length + 1] for i in at])  #: input
    logits = model(x)
    loss = F.cross_entropy(logits.view(-1, 96), y.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(loss.item())
