"""Adversarial pair on a ring of points; a fixed noise shows how the generator improves."""

import sys

import torch
from torch import nn

torch.manual_seed(18)


def mlp(a, b):
    return nn.Sequential(nn.Linear(a, 48), nn.LeakyReLU(0.2), nn.Linear(48, b))


def real(n):
    phi = torch.rand(n) * 6.283
    return torch.stack([phi.cos(), phi.sin()], dim=1)


G, D = mlp(8, 2), mlp(2, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
fixed = torch.randn(64, 8)
frames = []

for step in range(int(sys.argv[1])):
    opt_d.zero_grad()
    fake = G(torch.randn(32, 8))
    loss_d = loss_of(D(real(32)), ones) + loss_of(D(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = loss_of(D(fake), ones)
    loss_g.backward()
    opt_g.step()

    if step % 2 == 0:
        frames.append(G(fixed))  # LEAK

print(len(frames), frames[-1].norm(dim=1).mean().item())
