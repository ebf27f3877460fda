"""How vines climb, as series: a generator against a critic whose slope is held, WGAN with its penalty."""

import torch
from torch import nn


def generator(noise=32, width=96):
    return nn.Sequential(
        nn.Linear(noise, width * 32),
        nn.ReLU(True),
        nn.Unflatten(1, (width, 32)),
        nn.Upsample(scale_factor=4),
        nn.Conv1d(width, width, 5, padding=2),
        nn.ReLU(True),
        nn.Upsample(scale_factor=4),
        nn.Conv1d(width, width, 5, padding=2),
        nn.ReLU(True),
        nn.Conv1d(width, 2, 5, padding=2),
    )


def critic(width=64):
    return nn.Sequential(
        nn.Conv1d(2, width, 5, 2, padding=2),
        nn.SiLU(),
        nn.Conv1d(width, width, 5, 2, padding=2),
        nn.SiLU(),
        nn.Conv1d(width, width, 5, 2, padding=2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(width * 64, 1),
    )


def slope(c, grown, made):
    part = torch.rand(len(grown), 1, 1, device=grown.device)
    between = (part * grown + (1 - part) * made).requires_grad_()
    (gradient,) = torch.autograd.grad(c(between).sum(), between, create_graph=True)
    return (gradient.flatten(1).norm(dim=1) - 1).pow(2).mean()


def main(count=128, turns=3):
    g, c = generator().cuda(), critic().cuda()
    for_g = torch.optim.Adam(g.parameters(), lr=1e-4, betas=(0.0, 0.9))
    for_c = torch.optim.Adam(c.parameters(), lr=1e-4, betas=(0.0, 0.9))
    for round in range(2):
        for _ in range(turns):
            grown = torch.rand(count, 2, 512, device="cuda")
            made = g(torch.randn(count, 32, device="cuda")).detach()
            loss_c = c(made).mean() - c(grown).mean() + 10 * slope(c, grown, made)
            for_c.zero_grad()
            loss_c.backward()
            for_c.step()
        loss_g = -c(g(torch.randn(count, 32, device="cuda"))).mean()
        for_g.zero_grad()
        loss_g.backward()
        for_g.step()
        print(round, loss_c.item(), loss_g.item())


main()
