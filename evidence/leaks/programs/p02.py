"""Classifier on synthetic digits; the loss curve is kept for a plot at the end."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
steps = int(sys.argv[1])

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
criterion = nn.CrossEntropyLoss()
curve = []

for step in range(steps):
    x = torch.randn(32, 64)
    y = torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    curve.append({"step": step, "loss": loss.item(), "lr": scheduler.get_last_lr()[0]})

print("first", curve[0]["loss"], "last", curve[-1]["loss"])
