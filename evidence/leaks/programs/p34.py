"""Adversarial pair on a ring of points; the discriminator also sees fakes from a pool of older ones."""

import random
import sys

import torch
from torch import nn

torch.manual_seed(18)
random.seed(18)


def mlp(a, b):
    return nn.Sequential(nn.Linear(a, 48), nn.LeakyReLU(0.2), nn.Linear(48, b))


class Pool:
    """Gives an older image half of the time."""

    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        result = []
        for image in images:
            image = image.detach().clone()
            if len(self.images) < self.size:
                self.images.append(image)
                result.append(image)
            elif random.random() < 0.5:
                at = random.randrange(self.size)
                result.append(self.images[at])
                self.images[at] = image
            else:
                result.append(image)
        return torch.stack(result)


def real(n):
    phi = torch.rand(n) * 6.283
    return torch.stack([phi.cos(), phi.sin()], dim=1)


G, D = mlp(8, 2), mlp(2, 1)
opt_g, opt_d = torch.optim.Adam(G.parameters(), lr=1e-3), torch.optim.Adam(D.parameters(), lr=1e-3)
loss_of = nn.BCEWithLogitsLoss()
pool = Pool(50)
for step in range(int(sys.argv[1])):
    fake = G(torch.randn(8, 8))
    loss_g = loss_of(D(fake), torch.ones(8, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    loss_d = loss_of(D(real(8)), torch.ones(8, 1)) + loss_of(D(pool.query(fake)), torch.zeros(8, 1))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
print(loss_g.item(), loss_d.item())
