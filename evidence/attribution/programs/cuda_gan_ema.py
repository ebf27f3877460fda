"""A GAN on the GPU, the generator's average evaluated each ten steps; pictures go to the CPU."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(
    nn.Linear(64, 128 * 16),
    nn.Unflatten(1, (128, 4, 4)),
    nn.ReLU(),
    nn.ConvTranspose2d(128, 64, 4, 2, 1),
    nn.ReLU(),
    nn.ConvTranspose2d(64, 3, 4, 2, 1),
).cuda()
critic = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.Flatten(), nn.Linear(128 * 16, 1)
).cuda()
average = copy.deepcopy(generator).requires_grad_(False)
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4)
opt_c = torch.optim.Adam(critic.parameters(), lr=2e-4)
fixed = torch.randn(64, 64, device="cuda")  #: input
pictures = []
for step in range(40):
    real = torch.randn(256, 3, 16, 16, device="cuda")  #: input
    noise = torch.randn(256, 64, device="cuda")  #: input
    fake = generator(noise)
    loss_c = nn.functional.softplus(critic(fake.detach())).mean() + nn.functional.softplus(-critic(real)).mean()
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    loss_g = nn.functional.softplus(-critic(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), generator.parameters(), strict=True):
            a.lerp_(p, 0.01)
        if step % 10 == 9:
            pictures.append(average(fixed).cpu())
