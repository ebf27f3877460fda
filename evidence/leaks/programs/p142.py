"""Denoising model with an averaged copy that follows the weights; samples are drawn from the copy now and then.
Source: lucidrains/denoising-diffusion-pytorch, the Trainer and its EMA.
"""

import copy
import sys

import torch
from torch import nn


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_every=2):
        super().__init__()
        self.online = [model]
        self.ema_model = copy.deepcopy(model).requires_grad_(False)
        self.beta, self.update_every, self.step = beta, update_every, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        if self.step % self.update_every == 0:
            for slow, fast in zip(self.ema_model.parameters(), self.online[0].parameters(), strict=True):
                slow.lerp_(fast, 1 - self.beta)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.body = nn.Linear(1, 40), nn.Linear(16, 40)
        self.out = nn.Linear(40, 16)

    def forward(self, x, t):
        return self.out(nn.functional.silu(self.body(x) + self.time(t)))


@torch.inference_mode()
def sample(model, count=6, levels=8):
    x = torch.randn(count, 16)
    for level in range(levels, 0, -1):
        x = x - model(x, torch.full((count, 1), level / levels)) / levels
    return x


torch.manual_seed(49)
model = Denoiser()
ema = EMA(model)
opt = torch.optim.Adam(model.parameters(), lr=8e-4, betas=(0.9, 0.99))
steps, accumulate = int(sys.argv[1]), 2
for step in range(steps):
    total = 0.0
    for _ in range(accumulate):
        x, noise, t = torch.rand(16, 16), torch.randn(16, 16), torch.rand(16, 1)
        loss = nn.functional.mse_loss(model(x * (1 - t) + noise * t, t), noise) / accumulate
        total += loss.item()
        loss.backward()
    opt.step()
    opt.zero_grad()
    ema.update()
    if step and step % 9 == 0:
        print(step, total, sample(ema.ema_model).std().item())
