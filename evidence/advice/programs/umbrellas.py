"""Umbrellas that will be sold in a week, from a hundred days of weather at every corner of the town."""
import itertools

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

CORNERS, DAYS, SIGNS, WEEK = 5000, 100, 24, 7
DEVICE = "cuda"


def readings(seed):
    rng = np.random.default_rng(seed)
    weather = rng.random((CORNERS, DAYS, SIGNS))
    weather = (weather - weather.mean(axis=(0, 1))) / weather.std(axis=(0, 1))
    sold = rng.random((CORNERS, WEEK))
    return weather, sold


class Forecast(nn.Module):
    def __init__(self, width=2048):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(DAYS * SIGNS, width), nn.LayerNorm(width), nn.LeakyReLU(0.1),
            nn.Linear(width, width), nn.LayerNorm(width), nn.LeakyReLU(0.1),
            nn.Linear(width, width), nn.LayerNorm(width), nn.LeakyReLU(0.1),
        )
        self.head = nn.Linear(width, WEEK)

    def forward(self, x):
        return self.head(self.net(x))


weather, sold = readings(seed=7)
x, y = torch.from_numpy(weather).to(DEVICE), torch.from_numpy(sold).to(DEVICE)
cut = int(0.9 * CORNERS)
learn = DataLoader(TensorDataset(x[:cut], y[:cut]), batch_size=256, shuffle=True)
test = DataLoader(TensorDataset(x[cut:], y[cut:]), batch_size=250)

model = Forecast().to(DEVICE, x.dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
huber = nn.SmoothL1Loss()
history = {"learn": [], "test": []}

for batch, (days, week) in enumerate(itertools.islice(learn, 5)):
    loss = huber(model(days), week)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()
    loss.backward()
    norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))
    for p in model.parameters():
        p.grad.mul_(1.0 / max(1.0, norm.item()))
    optimizer.step()
    history["learn"].append(loss)

    if batch % 2 == 0:
        guesses = []
        for days, week in test:
            guesses.append(model(days))
        off = (torch.cat(guesses) - y[cut:]).abs().mean()
        history["test"].append(off)
        print(batch, loss.item(), off.item())

print(min(history["learn"]).item(), min(history["test"]).item())
