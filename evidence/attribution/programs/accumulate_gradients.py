"""Four micro-batches an update."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(640, 512)  #: input
labels = torch.randint(0, 16, (640,))  #: input
loader = DataLoader(TensorDataset(inputs, labels), batch_size=16)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.Adam(model.parameters())
for i, (x, y) in enumerate(loader):  #: input
    loss = nn.functional.cross_entropy(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
