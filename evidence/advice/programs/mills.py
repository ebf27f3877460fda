"""Grain through mills, by a net whose first layer is a long table; zeroed gradients, and a long look ahead first."""

import torch
from torch import nn

table = nn.EmbeddingBag(60000, 512, mode="sum").cuda()
mill = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 8)).cuda()
rule = torch.optim.Adagrad([*table.parameters(), *mill.parameters()], lr=0.01, foreach=False)
for load in range(4):
    grains = torch.randint(0, 60000, (6000, 12), device="cuda")
    flour = mill(table(grains))
    rule.zero_grad(set_to_none=False)
    flour.logsumexp(1).sum().backward()
    rule.step()
