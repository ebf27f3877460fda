"""Nearest-neighbour contrast with a support queue of fixed length, overwritten in turn.
Source: lightly-ai/lightly, lightly/models/modules/nn_memory_bank.py (NNCLR).
"""

import sys

import torch
from torch import nn


class MemoryBank(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.register_buffer("bank", nn.functional.normalize(torch.randn(size, dim), dim=1))
        self.at = 0

    @torch.no_grad()
    def enqueue(self, batch):
        end = self.at + len(batch)
        if end >= len(self.bank):
            self.bank[self.at :] = batch[: len(self.bank) - self.at].detach()
            self.at = 0
        else:
            self.bank[self.at : end] = batch.detach()
            self.at = end

    def forward(self, output, update=False):
        bank = self.bank.clone()
        if update:
            self.enqueue(output)
        similarity = nn.functional.normalize(output, dim=1) @ bank.t()
        return bank[similarity.argmax(dim=1)]


class Nnclr(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(28, 48), nn.ReLU())
        self.projection, self.prediction = nn.Linear(48, 24), nn.Linear(24, 24)

    def forward(self, x):
        z = self.projection(self.backbone(x))
        return z.detach(), self.prediction(z)


def nt_xent(a, b, temperature=0.1):
    logits = nn.functional.normalize(a, dim=1) @ nn.functional.normalize(b, dim=1).t() / temperature
    return nn.functional.cross_entropy(logits, torch.arange(len(a)))


torch.manual_seed(47)
model, bank = Nnclr(), MemoryBank(64, 24)
opt = torch.optim.SGD(model.parameters(), lr=0.06)
for epoch in range(int(sys.argv[1]) // 12):
    total = 0.0
    for _ in range(12):
        x = torch.randn(10, 28)
        z0, p0 = model(x + 0.1 * torch.randn_like(x))
        z1, p1 = model(x + 0.1 * torch.randn_like(x))
        z0, z1 = bank(z0), bank(z1, update=True)
        loss = 0.5 * (nt_xent(z0, p1) + nt_xent(z1, p0))
        total += loss.detach()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, (total / 12).item())
