"""Exponential moving average in a dictionary, evaluated with the averaged weights."""

import torch
from torch import nn

torch.manual_seed(0)


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay, self.backup = model, decay, {}
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}  #: kept

    @torch.no_grad()
    def update(self):
        for n, p in self.model.named_parameters():
            self.shadow[n].mul_(self.decay).add_(p, alpha=1 - self.decay)

    @torch.no_grad()
    def apply(self):
        for n, p in self.model.named_parameters():
            self.backup[n] = p.detach().clone()  #: kept
            p.copy_(self.shadow[n])

    @torch.no_grad()
    def restore(self):
        for n, p in self.model.named_parameters():
            p.copy_(self.backup[n])
        self.backup = {}


model = nn.Sequential(nn.Linear(256, 1536), nn.SiLU(), nn.Linear(1536, 256))
ema = EMA(model, 0.99)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
held_out = torch.randn(256, 256)  #: input
for epoch in range(3):
    for step in range(10):
        x = torch.randn(64, 256)  #: input
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
    ema.apply()
    model.eval()
    with torch.no_grad():
        for part in held_out.split(64):
            nn.functional.mse_loss(model(part), part).item()
    model.train()
    ema.restore()
