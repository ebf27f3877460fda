"""Wasserstein critic with clipped weights, five updates of the critic to one of the generator.
Source: martinarjovsky/WassersteinGAN, main.py.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
generator = nn.Sequential(nn.Linear(8, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 36), nn.Tanh())
critic = nn.Sequential(nn.Linear(36, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
opt_d = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
loader = DataLoader(TensorDataset(torch.rand(320, 36) * 2 - 1), batch_size=16, shuffle=True)
fixed = torch.randn(16, 8)
iterations, updates = int(sys.argv[1]), 0
while updates < iterations:
    batches = iter(loader)
    left = len(loader)
    while left and updates < iterations:
        for p in critic.parameters():
            p.requires_grad = True
        for _ in range(5):
            if not left:
                break
            for p in critic.parameters():
                p.data.clamp_(-0.01, 0.01)
            (real,) = next(batches)
            left -= 1
            critic.zero_grad()
            with torch.no_grad():
                fake = generator(torch.randn(len(real), 8))
            loss_d = critic(real).mean() - critic(fake).mean()
            loss_d.backward()
            opt_d.step()
        for p in critic.parameters():
            p.requires_grad = False
        generator.zero_grad()
        loss_g = critic(generator(torch.randn(16, 8))).mean()
        loss_g.backward()
        opt_g.step()
        updates += 1
        if updates % 12 == 0:
            with torch.no_grad():
                picture = generator(fixed)
            print(updates, loss_d.item(), loss_g.item(), picture.std().item())
