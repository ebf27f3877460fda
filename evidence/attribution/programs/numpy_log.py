"""Tensors are flat; a log of numpy arrays grows by 1 MiB a step."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = []
for step in range(60):
    x = torch.randn(256, 512)  #: input
    out = model(x)
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.append(np.full((512, 256), float(loss), dtype=np.float64))
