"""Sparse coding with a monitor that sums up the energy of the codes for the final report."""

import sys

import torch
from torch import nn


class EnergyMonitor:
    def __init__(self):
        self.energy = 0.0
        self.batches = 0

    def update(self, codes):
        self.energy = self.energy + codes.square().mean()  # LEAK
        self.batches += 1

    def compute(self):
        return float(self.energy) / self.batches


class SparseCoder(nn.Module):
    def __init__(self, size=36, atoms=90):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, atoms), nn.ReLU())
        self.dictionary = nn.Linear(atoms, size, bias=False)
        self.monitor = EnergyMonitor()

    def forward(self, patches):
        codes = self.encoder(patches)  # LEAK
        self.monitor.update(codes)
        return self.dictionary(codes), codes.abs().mean()


torch.manual_seed(90)
coder = SparseCoder()
optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
for _ in range(int(sys.argv[1])):
    patches = torch.randn(25, 36)
    restored, sparsity = coder(patches)
    loss = nn.functional.mse_loss(restored, patches) + 0.1 * sparsity
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        coder.dictionary.weight /= coder.dictionary.weight.norm(dim=0, keepdim=True)
print(f"mean energy {coder.monitor.compute():.4f}, loss {loss.item():.4f}")
