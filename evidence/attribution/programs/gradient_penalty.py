"""A critic with gradient penalty: backward through backward."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(784, 512), nn.Softplus(), nn.Linear(512, 512), nn.Softplus(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    (slope,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


for step in range(12):
    real, fake = torch.rand(256, 784), torch.rand(256, 784)  #: input
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
