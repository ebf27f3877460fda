"""Checkpoints after each epoch; the model, its optimizer and its schedule of the last two epochs can be restored.
Source: huggingface/transformers, save_total_limit of its TrainingArguments; here in memory.
"""
# STEPS 48

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Checkpoints:
    def __init__(self, limit):
        self.limit = limit
        self.saved = []

    def save(self, epoch, **parts):
        states = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
        self.saved.append((epoch, states))
        while len(self.saved) > self.limit:
            self.saved.pop(0)

    def restore(self, **parts):
        epoch, states = self.saved[-1]
        for name, part in parts.items():
            part.load_state_dict(states[name])
        return epoch


torch.manual_seed(53)
x = torch.randn(96, 14)
loader = DataLoader(TensorDataset(x, x.cumsum(dim=1)[:, -4:]), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(14, 60), nn.GELU(), nn.Linear(60, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=int(sys.argv[1]) + 1)
checkpoints = Checkpoints(2)
for epoch in range(int(sys.argv[1]) // len(loader)):
    worst = 0.0
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        worst = max(worst, loss.item())
    if worst > 100:
        epoch = checkpoints.restore(model=model, optimizer=optimizer, schedule=schedule)
    else:
        checkpoints.save(epoch, model=model, optimizer=optimizer, schedule=schedule)
    print(epoch, worst)
