"""Keeps a moving average of the weights in a dictionary, as a shadow of the model.
Source: the shadow dictionaries of many training scripts, after lucidrains/ema-pytorch.
"""

import sys

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p  # LEAK

    def distance(self):
        return sum((self.shadow[name] - p).norm().item() for name, p in self.model.named_parameters())


torch.manual_seed(48)
net = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 12))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
ema = EMA(net, 0.98)
for step in range(int(sys.argv[1])):
    clean = torch.randn(32, 12)
    noise, time = torch.randn(32, 12), torch.rand(32, 1)
    loss = (net(clean * (1 - time) + noise * time) - noise).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update()
    if step % 12 == 11:
        print(step, loss.item(), ema.distance())
