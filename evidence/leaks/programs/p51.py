"""Greedy decoding with cached keys and values; each new token attends to what was decoded before."""

import sys

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.past = None

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.past is not None:
            k = torch.cat([self.past[0], k], dim=1)  # LEAK
            v = torch.cat([self.past[1], v], dim=1)  # LEAK
        self.past = (k, v)
        return nn.functional.scaled_dot_product_attention(q, k, v)


class Decoder(nn.Module):
    def __init__(self, vocab=64, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.attend = Attention(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, token):
        return self.out(self.attend(self.embed(token)))


torch.manual_seed(32)
decoder = Decoder().eval()
tokens = torch.zeros(4, 1, dtype=torch.long)
with torch.inference_mode():
    for _ in range(int(sys.argv[1])):
        tokens = decoder(tokens).argmax(dim=-1)
print(tokens.flatten().tolist())
