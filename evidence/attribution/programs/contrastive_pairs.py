"""Contrastive learning: the matrix of similarities between all pairs."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
n = int(sys.argv[1]) if len(sys.argv) > 1 else 768
encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
optimizer = torch.optim.Adam(encoder.parameters())


def info_nce(a, b, temperature=0.1):
    z = nn.functional.normalize(torch.cat([a, b]), dim=1)
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    labels = torch.cat([torch.arange(len(a)) + len(a), torch.arange(len(a))])
    return nn.functional.cross_entropy(similarity, labels)


for step in range(8):
    x = torch.randn(n, 64)  #: input
    first = encoder(x + 0.1 * torch.randn_like(x))
    second = encoder(x + 0.1 * torch.randn_like(x))
    loss = info_nce(first, second)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
