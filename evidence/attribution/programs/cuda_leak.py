"""Outputs stay on the GPU for the epoch's metrics and are never dropped."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(512, 2048).cuda()
optimizer = torch.optim.Adam(model.parameters())
collected = {"logits": []}
for step in range(40):
    x = torch.randn(256, 512, device="cuda")  #: input
    logits = model(x)
    loss = logits.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    collected["logits"].append(logits.detach().half())  #: kept
