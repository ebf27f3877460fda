"""Stochastic weight averaging in the second half, under a cosine schedule with warm restarts."""

import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.optim.swa_utils import AveragedModel, update_bn

torch.manual_seed(67)
steps = int(sys.argv[1])
model = nn.Sequential(nn.Linear(18, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6))
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=6, T_mult=1)
rates = []
for step in range(steps):
    inputs = torch.randn(40, 18)
    targets = inputs[:, :6].argmax(dim=1)
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    rates.append(scheduler.get_last_lr()[0])
    if step >= steps // 2:
        swa_model.update_parameters(model)
update_bn([torch.randn(40, 18) for _ in range(3)], swa_model)
with torch.no_grad():
    test = torch.randn(200, 18)
    hits = (swa_model(test).argmax(dim=1) == test[:, :6].argmax(dim=1)).float().mean()
print(f"accuracy of the average {hits.item():.3f}, lowest rate {min(rates):.4f}")
