"""Inference: triangle multiplication over pairs, as in protein folding. Everything in it is of the moment."""

import torch
from torch import nn

torch.manual_seed(0)


class Triangle(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.left, self.right, self.gate, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, pair):
        z = self.norm(pair)
        left, right = self.left(z), self.right(z)
        mixed = torch.einsum("bikc,bjkc->bijc", left, right)
        return pair + self.out(mixed) * self.gate(z).sigmoid()


trunk = nn.Sequential(*(Triangle(48) for _ in range(4))).eval()
distances = nn.Linear(48, 16).eval()
with torch.no_grad():
    for protein in range(12):
        residues = torch.randn(1, 112, 48)  #: input
        pair = residues[:, :, None] + residues[:, None, :]  #: input
        pair = trunk(pair)
        bins = distances(pair + pair.transpose(1, 2)).softmax(-1)
        print(protein, bins.amax().item())
