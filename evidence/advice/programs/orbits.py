"""Small bodies in orbit pull at each other: places and speeds, moved on step by step, with nothing to learn."""

import torch

BODIES = 2048
where = torch.randn(BODIES, 3).cuda()
speed = torch.zeros(BODIES, 3).cuda()
mass = torch.rand(BODIES).cuda()


def pull(where, mass):
    apart = where[None] - where[:, None]
    square = apart.square().sum(-1) + 1e-3
    weight = mass * square**-1.5
    return (apart * weight[..., None]).sum(1)


for _ in range(4):
    speed = speed + 0.01 * pull(where, mass)
    where = where + 0.01 * speed
print(where.shape)
