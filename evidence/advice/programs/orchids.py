"""Orchids that never grew: a painter and a critic learn against each other, as in DCGAN."""

import torch
from torch import nn


class Painter(nn.Module):
    def __init__(self, noise=100, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(noise, width * 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(width * 8),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 8, width * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.net(noise)


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, width * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width * 4, 1, 8),
        )

    def forward(self, picture):
        return self.look(picture).flatten()


def main(count=128):
    painter, critic = Painter().cuda(), Critic().cuda()
    for_painter = torch.optim.Adam(painter.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge = nn.BCEWithLogitsLoss()
    yes, no = torch.ones(count, device="cuda"), torch.zeros(count, device="cuda")
    for step in range(4):
        grown = torch.rand(count, 3, 64, 64).cuda() * 2 - 1

        for_critic.zero_grad()
        painted = painter(torch.randn(count, 100, 1, 1, device="cuda"))
        doubt = judge(critic(grown), yes) + judge(critic(painted.detach()), no)
        doubt.backward()
        for_critic.step()

        for_painter.zero_grad()
        attempt = painter(torch.randn(count, 100, 1, 1, device="cuda"))
        shame = judge(critic(attempt), yes)
        shame.backward()
        for_painter.step()
        print(step, doubt.item(), shame.item())


main()
