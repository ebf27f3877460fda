"""Probabilities of the last twelve batches are kept for a moving score; older ones are cut off."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(1536, 128), torch.randint(0, 4000, (1536,))  #: input
train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=64, shuffle=True)
valid = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=64)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 4000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
recent = []
for epoch in range(3):
    model.train()
    for x, y in train:  #: input
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        recent.append(logits.detach().softmax(1))  #: kept
        del recent[:-12]
        score = sum(p.amax(1).mean().item() for p in recent) / len(recent)
    model.eval()
    right = 0
    for x, y in valid:  #: input
        with torch.no_grad():
            right += (model(x).argmax(1) == y).sum().item()
    accelerator.print(epoch, score, right)
