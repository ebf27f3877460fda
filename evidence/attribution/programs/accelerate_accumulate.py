"""Accelerate's accumulate context: an update after every third batch."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
data = torch.randn(720, 256)  #: input
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(data), batch_size=24))
for (x,) in loader:  #: input
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(x), x)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
