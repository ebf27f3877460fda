"""Replies word by word, by a decoder written here, past keys and values kept; two of them at once."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, past):
        q, k, v = (y.unflatten(-1, (8, -1)).transpose(1, 2) for y in self.qkv(self.a(x)).chunk(3, dim=-1))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.b(x)))), (k, v)


class Speaker(nn.Module):
    def __init__(self, words=8000, width=512, depth=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.parts = nn.ModuleList(Part(width) for _ in range(depth))

    def forward(self, ids, pasts):
        x, kept = self.words(ids), []
        for part, past in zip(self.parts, pasts):
            x, now = part(x, past)
            kept.append(now)
        return x[:, -1] @ self.words.weight.T, kept


def reply(speaker, start, length):
    pasts, ids, said = [None] * 4, start, []
    for _ in range(length):
        scores, pasts = speaker(ids, pasts)
        ids = scores.argmax(dim=-1, keepdim=True)
        said.append(ids)
    return torch.cat(said, dim=1)


with torch.device("cuda"):
    speaker = Speaker()
for _ in range(2):
    print(reply(speaker, torch.randint(0, 8000, (2, 300), device="cuda"), 40).shape)
