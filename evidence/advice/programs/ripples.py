"""A pond answers a stone: rings run out, cross, and come back from the bank, as a net that knows the law of waves tells it."""

import numpy as np
import torch
import torch.nn as nn


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class Pond(nn.Module):
    """Height of the water at a place and a time."""

    def __init__(self, width, depth):
        super().__init__()
        sizes = [3] + [width] * depth
        rungs = []
        for a, b in zip(sizes, sizes[1:]):
            rungs += [nn.Linear(a, b), Sine()]
        self.rungs = nn.Sequential(*rungs, nn.Linear(width, 1))

    def forward(self, p):
        return self.rungs(p)


def slope(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def law(net, p, speed=1.5):
    p.requires_grad_(True)
    u = net(p)
    first = slope(u, p)
    u_xx = slope(first[:, 0:1], p)[:, 0:1]
    u_yy = slope(first[:, 1:2], p)[:, 1:2]
    u_tt = slope(first[:, 2:3], p)[:, 2:3]
    return u_tt - speed**2 * (u_xx + u_yy)


def places(rng, n, t=None):
    p = rng.uniform(-1, 1, size=(n, 3))
    p[:, 2] = rng.uniform(0, 2, size=n) if t is None else t
    return torch.from_numpy(p).cuda()


rng = np.random.default_rng(11)
inside, start = places(rng, 6000), places(rng, 2000, t=0)
net = Pond(width=96, depth=5).to(inside)
stone = torch.exp(-50 * start[:, :2].square().sum(dim=1, keepdim=True))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
history = {"law": [], "start": []}

for turn in range(4):
    adam.zero_grad()
    residual = law(net, inside)
    still = slope(net(start.requires_grad_()), start)[:, 2]
    loss_law = residual.square().mean()
    loss_start = (net(start) - stone).square().mean() + still.square().mean()
    loss = loss_law + 20 * loss_start
    loss.backward()
    adam.step()
    history["law"].append(loss_law)
    history["start"].append(loss_start)

x = torch.linspace(-1, 1, 160)
grid = torch.stack(torch.meshgrid(x, x, torch.tensor([0.5]), indexing="ij"), dim=-1).view(-1, 3)
height = net(grid.to(inside))
print(height.shape, torch.stack(history["law"]).tolist())
