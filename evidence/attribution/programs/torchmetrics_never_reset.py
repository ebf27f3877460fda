"""A metric that stores all scores is updated every step and never reset."""

import torch
import torchmetrics
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1))
curve = torchmetrics.AUROC(task="binary")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(60):
    x = torch.randn(4096, 64)  #: input
    y = (x[:, 0] > 0).float()  #: input
    score = model(x)[:, 0]
    loss = nn.functional.binary_cross_entropy_with_logits(score, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    curve.update(score.detach(), y.int())  #: kept
print(curve.compute())
