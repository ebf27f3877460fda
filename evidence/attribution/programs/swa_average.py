"""Stochastic weight averaging, evaluated with the average."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(4):
    for step in range(10):
        x = torch.randn(64, 128)  #: input
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    average.update_parameters(model)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(64, 128)  #: input
            nn.functional.mse_loss(average(x), x).item()
