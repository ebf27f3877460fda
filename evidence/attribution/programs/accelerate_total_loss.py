"""An example's `total_loss += loss` without detach, in a function."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def train(accelerator, model, optimizer, loader, epochs):
    total_loss = 0
    for _ in range(epochs):
        for x, y in loader:  #: input
            loss = nn.functional.mse_loss(model(x), y)
            total_loss += loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return float(total_loss)


accelerator = Accelerator(cpu=True)
x = torch.randn(640, 32)  #: input
model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(x, x[:, :1].clone()), batch_size=32)  #: input
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
print(train(accelerator, model, optimizer, loader, 5))
