"""Generator against discriminator: two optimizers, a gradient penalty (double backward), an averaged generator."""

import copy
from collections.abc import Callable

import torch
from torch import nn


def mlp(*widths):
    layers = []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def penalty(discriminator, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(discriminator(between).sum(), between, create_graph=True)
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


def main(check: Callable[[str], None] = lambda name: None, steps: int = 15) -> float:
    torch.manual_seed(4)
    generator, discriminator = mlp(8, 64, 64, 2), mlp(2, 64, 64, 1)
    average = copy.deepcopy(generator).requires_grad_(False)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    check("models")
    g_loss = torch.zeros(())
    for _ in range(steps):
        angle = torch.rand(64) * 6.2832
        real = torch.stack([angle.cos(), angle.sin()], 1)
        fake = generator(torch.randn(64, 8))
        check("fake")
        d_loss = discriminator(fake.detach()).mean() - discriminator(real).mean()
        d_loss = d_loss + 10 * penalty(discriminator, real, fake.detach())
        check("discriminator forward")
        d_optimizer.zero_grad()
        d_loss.backward()
        check("discriminator backward")
        d_optimizer.step()
        check("discriminator step")
        g_loss = -discriminator(fake).mean()
        g_optimizer.zero_grad()
        g_loss.backward()
        check("generator backward")
        g_optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), generator.parameters(), strict=True):
                a.lerp_(p, 0.05)
        check("average")
    return g_loss.item()


if __name__ == "__main__":
    print(f"{main():.4f}")
