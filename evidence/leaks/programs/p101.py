"""Wasserstein critic with a gradient penalty, five updates of the critic to one of the generator; both curves are kept.
Source: eriklindernoren/PyTorch-GAN, implementations/wgan_gp/wgan_gp.py.
"""
# STEPS 24

import sys

import torch
from torch import nn


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, outputs))


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)  # LEAK
    scores = critic(between)  # LEAK
    grads = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)[0]  # LEAK
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()  # LEAK


def ring(count):
    angle = torch.rand(count) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1)


torch.manual_seed(8)
generator, critic = mlp(6, 2), mlp(2, 1)
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
n_critic, d_losses, g_losses = 5, [], []
for step in range(int(sys.argv[1])):
    for _ in range(n_critic):
        real = ring(24)
        fake = generator(torch.randn(24, 6)).detach()
        d_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)  # LEAK
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
    g_loss = -critic(generator(torch.randn(24, 6))).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    d_losses.append(d_loss)  # LEAK
    g_losses.append(g_loss.item())
print("critic", d_losses[-1].item(), "generator", g_losses[-1])
