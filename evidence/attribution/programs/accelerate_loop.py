"""Accelerate's standard loop with gather_for_metrics."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
x = torch.randn(960, 300)  #: input
y = torch.randint(0, 30, (960,))  #: input
train = DataLoader(TensorDataset(x[:640], y[:640]), batch_size=64, shuffle=True)
valid = DataLoader(TensorDataset(x[640:], y[640:]), batch_size=64)
model = nn.Sequential(nn.Linear(300, 1000), nn.ReLU(), nn.Linear(1000, 30))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
for epoch in range(3):
    model.train()
    for inputs, labels in train:  #: input
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    correct = 0
    for inputs, labels in valid:  #: input
        with torch.no_grad():
            predictions = model(inputs).argmax(-1)
        predictions, labels = accelerator.gather_for_metrics((predictions, labels))
        correct += int((predictions == labels).sum())
