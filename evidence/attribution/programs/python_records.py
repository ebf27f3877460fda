"""Tensors are flat; a list of Python dictionaries grows by about 2 MiB a step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
optimizer = torch.optim.Adam(model.parameters())
records = []
for step in range(60):
    x = torch.randn(64, 128)  #: input
    out = model(x)
    loss = nn.functional.mse_loss(out, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for row in out.detach():
        records.append({f"feature {i}": value for i, value in enumerate(row.tolist())})
