"""Guilds of craftsmen share out the words of a town's chronicle, each to whom it suits best."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

cfg = dict(vocab=4096, dim=256, heads=8, layers=3, guilds=8, hidden=1024, spare=1.25, rows=12, length=256)


class Guilds(nn.Module):
    """Every word goes to one guild, as long as there is room."""

    def __init__(self, dim, hidden, guilds, spare):
        super().__init__()
        self.guilds, self.spare = guilds, spare
        self.router = nn.Linear(dim, guilds, bias=False)
        self.w1 = nn.Parameter(torch.randn(guilds, dim, hidden) * dim**-0.5)
        self.w2 = nn.Parameter(torch.randn(guilds, hidden, dim) * hidden**-0.5)

    def forward(self, x):
        rows, length, dim = x.shape
        words = x.reshape(-1, dim)
        room = int(self.spare * len(words) / self.guilds)
        logits = self.router(words)
        if self.training:
            noise = torch.from_numpy(np.random.gumbel(scale=0.1, size=tuple(logits.shape)))
            logits = logits + noise.to(logits.device)
        gates = F.softmax(logits, dim=-1)
        best, guild = gates.max(dim=-1)
        chosen = F.one_hot(guild, self.guilds).to(gates)
        place = (chosen.cumsum(dim=0) - 1) * chosen
        seats = torch.arange(room, device=x.device)
        combine = (best.unsqueeze(-1) * chosen).unsqueeze(-1) * (place.unsqueeze(-1) == seats)
        sent = (combine > 0).type_as(words)
        work = torch.einsum("tgc,td->gcd", sent, words)
        work = F.relu(torch.bmm(work, self.w1))
        work = torch.bmm(work, self.w2)
        out = torch.einsum("tgc,gcd->td", combine.type_as(words), work)
        balance = self.guilds * (gates.mean(0) * chosen.mean(0)).sum()
        return out.view(rows, length, dim), balance


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(c["dim"]), nn.LayerNorm(c["dim"])
        self.attention = nn.MultiheadAttention(c["dim"], c["heads"], batch_first=True)
        self.guilds = Guilds(c["dim"], c["hidden"], c["guilds"], c["spare"])

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask)[0]
        out, balance = self.guilds(self.norm2(x))
        return x + out, balance


class Chronicle(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        self.place = nn.Parameter(torch.zeros(c["length"], c["dim"]))
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.head = nn.Linear(c["dim"], c["vocab"], bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(c["length"]))

    def forward(self, ids):
        x, total = self.embed(ids) + self.place, 0.0
        for layer in self.layers:
            x, balance = layer(x, self.mask)
            total = total + balance
        return self.head(x), total / len(self.layers)


def train_step(model, optimizer, ids):
    logits, balance = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + 0.01 * balance.float()
    loss.backward()
    optimizer.step()
    for p in model.parameters():
        p.grad.zero_()
    return loss.item()


town = Chronicle(cfg).cuda()
opt = torch.optim.AdamW(town.parameters(), lr=3e-4, betas=(0.9, 0.95))
for day in range(4):
    page = torch.randint(0, cfg["vocab"], (cfg["rows"], cfg["length"] + 1)).cuda()
    print(day, train_step(town, opt, page))
