"""Estimates the gradient noise scale of a regression from the gradients of its updates."""

import sys

import torch
from torch import nn


def flat_gradient(module):
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])  # LEAK


def noise_scale(gradients):
    g = torch.stack(gradients)
    return (g.var(dim=0).sum() / g.mean(dim=0).square().sum()).item()


def main():
    torch.manual_seed(64)
    true = torch.randn(24, 2)
    net = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    gradients = []
    for _ in range(int(sys.argv[1])):
        x = torch.randn(32, 24)
        y = x @ true + 0.1 * torch.randn(32, 2)
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        gradients.append(flat_gradient(net))
        opt.step()
    print("noise scale", noise_scale(gradients))


if __name__ == "__main__":
    main()
