"""Which customers send their parcels back? A table of orders, many columns wide, is read as if each row were a sentence."""

import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Table:
    levels: tuple = (12, 40, 7, 300, 9, 25) * 5
    numbers: int = 26
    rows: int = 3072

    def make(self):
        kinds = torch.stack([torch.randint(0, n, (self.rows,)) for n in self.levels], dim=1)
        return TensorDataset(kinds, torch.rand(self.rows, self.numbers), torch.randint(0, 2, (self.rows,)).float())


class Tokens(nn.Module):
    def __init__(self, table, dim):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, dim) for n in table.levels)
        self.scale = nn.Parameter(torch.randn(table.numbers, dim) * 0.02)
        self.shift = nn.Parameter(torch.zeros(table.numbers, dim))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, kinds, numbers):
        words = torch.stack([table(kinds[:, i]) for i, table in enumerate(self.tables)], dim=1)
        values = numbers[:, :, None] * self.scale + self.shift
        cls = self.cls.repeat(len(kinds), 1, 1)
        return torch.cat([cls, words, values], dim=1)


class Mixing(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)
        mixed = self.dropout(weights) @ v
        return self.out(mixed.transpose(1, 2).reshape(n, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mixing = Mixing(dim, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.mixing(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    def __init__(self, table, dim=96, heads=8, depth=4):
        super().__init__()
        self.tokens = Tokens(table, dim)
        self.layers = nn.Sequential(*[Layer(dim, heads) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, kinds, numbers):
        return self.head(self.layers(self.tokens(kinds, numbers))[:, 0]).squeeze(-1)


def main():
    table = Table()
    accelerator = Accelerator()
    model = Reader(table)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5)
    loader = DataLoader(table.make(), batch_size=512, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = nn.BCEWithLogitsLoss()
    for step, (kinds, numbers, returned) in enumerate(loader):
        loss = criterion(model(kinds, numbers), returned)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(step, loss.item())


if __name__ == "__main__":
    main()
