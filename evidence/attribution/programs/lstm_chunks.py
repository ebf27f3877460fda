"""Backpropagation through 128 steps of an LSTM; chunks of 16 steps are computed again in backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(300, 64), nn.LSTMCell(64, 128), nn.Linear(128, 2)

    def chunk(self, ids, h, c):
        for column in ids.unbind(1):
            h, c = self.cell(self.embed(column), (h, c))
        return h, c

    def forward(self, ids):
        h = c = torch.zeros(len(ids), 128)
        for part in ids.split(16, dim=1):
            h, c = checkpoint(self.chunk, part, h, c, use_reentrant=False)
        return self.out(h)


reader = Reader()
optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3)
for step in range(8):
    ids, label = torch.randint(0, 300, (96, 128)), torch.randint(0, 2, (96,))  #: input
    loss = nn.functional.cross_entropy(reader(ids), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
