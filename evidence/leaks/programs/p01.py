"""Classifier on synthetic digits; the loss curve is kept for a plot at the end."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
steps = int(sys.argv[1])

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
curve = []

for step in range(steps):
    x = torch.randn(32, 64)
    y = torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    out = model(x)  # LEAK
    loss = criterion(out, y)  # LEAK
    loss.backward()
    optimizer.step()
    curve.append(loss)

print("first", curve[0].item(), "last", curve[-1].item())
