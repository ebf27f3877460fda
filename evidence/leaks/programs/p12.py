"""Momentum contrast: a query encoder, a slow key encoder and a queue of keys."""

import copy
import sys

import torch
from torch import nn

torch.manual_seed(5)
query = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))
key = copy.deepcopy(query)
for p in key.parameters():
    p.requires_grad_(False)
opt = torch.optim.SGD(query.parameters(), lr=0.05, momentum=0.9)
queue = torch.zeros(0, 16)
for _ in range(int(sys.argv[1])):
    x = torch.randn(16, 32)
    q = nn.functional.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
    with torch.no_grad():
        for slow, fast in zip(key.parameters(), query.parameters()):
            slow.mul_(0.99).add_(fast, alpha=0.01)
        k = nn.functional.normalize(key(x), dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1) / 0.2
    loss = nn.functional.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue = torch.cat([k, queue])[:128]
print(queue.shape, loss.item())
