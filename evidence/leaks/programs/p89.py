"""Novelty search: a walker's weights evolve towards places where none has been."""

import random
import sys

import torch

INPUTS, HIDDEN, OUTPUTS = 4, 16, 2
SIZE = INPUTS * HIDDEN + HIDDEN * OUTPUTS


def policy(theta, state):
    first = theta[: INPUTS * HIDDEN].view(INPUTS, HIDDEN)
    second = theta[INPUTS * HIDDEN :].view(HIDDEN, OUTPUTS)
    return torch.tanh(torch.tanh(state @ first) @ second)


def walk(theta, length=12):
    place = torch.ones(2)
    speed = torch.zeros(2)
    for _ in range(length):
        speed = 0.8 * speed + 0.2 * policy(theta, torch.cat([place, speed]))
        place = place + speed  # LEAK
    return place


def novelty(place, archive):
    others = random.sample(archive, min(10, len(archive)))
    return sum((place - other).norm().item() for other, _ in others) / len(others)


random.seed(88)
torch.manual_seed(88)
theta = torch.randn(SIZE) * 0.5
archive = [(walk(theta), theta)]
for generation in range(int(sys.argv[1])):
    family = []
    for _ in range(6):
        child = theta + 0.1 * torch.randn(SIZE)  # LEAK
        family.append((child, walk(child)))
    scored = [(novelty(place, archive), n) for n, (_, place) in enumerate(family)]
    theta, place = family[max(scored)[1]]
    archive.append((place, theta))
reach = torch.stack([place for place, _ in archive]).norm(dim=1)
print(f"{len(archive)} walkers, the farthest came {reach.max().item():.3f} far")
