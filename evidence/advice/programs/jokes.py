"""A comedian improvises several endings to each joke and keeps the ones that surprise least."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, DIM, DEPTH, HEADS, KV_HEADS = 24000, 512, 6, 8, 2
SETUP, ENDING, JOKES, TRIES = 192, 40, 4, 6


def rotate(x, start):
    d = x.shape[-1]
    freq = 10000 ** (-torch.arange(0, d, 2, device=x.device) / d)
    angle = torch.outer(torch.arange(start, start + x.shape[2], device=x.device), freq)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_dim = DIM // HEADS
        self.q = nn.Linear(DIM, DIM, bias=False)
        self.kv = nn.Linear(DIM, 2 * KV_HEADS * self.head_dim, bias=False)
        self.o = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x, past):
        rows, length, _ = x.shape
        start = past[0].shape[2] if past else 0
        q = self.q(x).view(rows, length, HEADS, self.head_dim).transpose(1, 2)
        k, v = self.kv(x).view(rows, length, 2, KV_HEADS, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, start), rotate(k, start)
        if past:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        present = (k, v)
        k = k.unsqueeze(2).repeat(1, 1, HEADS // KV_HEADS, 1, 1).flatten(1, 2)
        v = v.unsqueeze(2).repeat(1, 1, HEADS // KV_HEADS, 1, 1).flatten(1, 2)
        weights = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        if length > 1:
            later = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).triu(1 + start)
            weights = weights.masked_fill(later, float("-inf"))
        mixed = weights.softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).reshape(rows, length, DIM)), present


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.n1, self.n2 = Attend(), nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.gate, self.up, self.down = nn.Linear(DIM, 1376), nn.Linear(DIM, 1376), nn.Linear(1376, DIM)

    def forward(self, x, past=None):
        h, present = self.attend(self.n1(x), past)
        x = x + h
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), present


class Comedian(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.norm = nn.RMSNorm(DIM)

    def forward(self, ids, pasts):
        x, presents = self.words(ids), []
        for layer, past in zip(self.layers, pasts):
            x, present = layer(x, past)
            presents.append(present)
        return F.linear(self.norm(x), self.words.weight), presents

    @torch.inference_mode()
    def improvise(self, setups, temperature=0.8):
        ids = setups.repeat_interleave(TRIES, dim=0)
        pasts, steps, said = [None] * DEPTH, [], []
        for _ in range(ENDING):
            logits, pasts = self(ids, pasts)
            steps.append(logits[:, -1])
            ids = torch.multinomial((steps[-1] / temperature).softmax(-1), 1)
            said.append(ids)
        endings = torch.cat(said, dim=1)
        surprise = torch.stack([F.cross_entropy(s, e, reduction="none") for s, e in zip(steps, endings.t())], dim=1)
        return endings, surprise.mean(dim=1).view(-1, TRIES)


comedian = Comedian().eval().to("cuda")
for evening in range(2):
    endings, surprise = comedian.improvise(torch.randint(0, VOCAB, (JOKES, SETUP), device="cuda"))
    print(evening, tuple(endings.shape), surprise.min(dim=1).values.tolist())
