"""Mixed precision: half copies of the weights are cached inside of autocast."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
mixed = len(sys.argv) < 2
model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.GELU())]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", enabled=mixed)
for step in range(8):
    x = torch.randn(4096, 1024, device="cuda")  #: input
    with torch.autocast("cuda", dtype=torch.float16, enabled=mixed):
        out = model(x)
        loss = out.float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
