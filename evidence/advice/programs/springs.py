"""A spring that is damped, by its equation alone: a net of time whose second derivative has to fit; nothing is measured."""

import torch
from torch import nn


class Motion(nn.Module):
    def __init__(self, width=384, depth=5):
        super().__init__()
        sizes = [2, *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.place = nn.Linear(width, 1)

    def forward(self, when, damping):
        x = torch.cat([when, damping], dim=1)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.place(x)


def slope(of, by):
    return torch.autograd.grad(of.sum(), by, create_graph=True)[0]


def main():
    motion = Motion().cuda()
    optimizer = torch.optim.Adam(motion.parameters(), lr=1e-3)
    for round in range(4):
        when = torch.rand(6000, 1, device="cuda", requires_grad=True)
        damping = torch.rand(6000, 1, device="cuda")
        place = motion(when, damping)
        speed = slope(place, when)
        force = slope(speed, when) + damping * speed + 40 * place
        start = motion(torch.zeros(200, 1, device="cuda"), damping[:200]) - 1
        loss = force.square().mean() + start.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(round, loss.item())


main()
