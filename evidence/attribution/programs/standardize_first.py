"""Data are standardized in one go before training: the peak is there."""

import torch
from torch import nn

torch.manual_seed(0)


def standardize(data):
    centred = data - data.mean(0)  #: input
    return centred / (centred.std(0) + 1e-6)  #: input


raw = torch.rand(8192, 256)  #: input
data = standardize(raw)
del raw
model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for start in range(0, 8192, 256):
    x = data[start : start + 256]
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
