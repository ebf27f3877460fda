"""Foxes and hares on a field of pixels: an actor and two critics, soft, as SAC has them; frames are kept on the device."""

import copy

import torch
from torch import nn


def eyes():
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
    )  # fmt: skip


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes, self.head = eyes(), nn.Linear(512, 6)

    def forward(self, frames):
        return self.head(self.eyes(frames))


class Field:
    def __init__(self, size=400):
        self.frames = torch.zeros(size, 4, 84, 84, device="cuda")
        self.moves = torch.zeros(size, dtype=torch.long, device="cuda")
        self.gains = torch.zeros(size, device="cuda")

    def sample(self, count):
        at = torch.randint(0, len(self.frames) - 1, (count,), device="cuda")
        return self.frames[at], self.moves[at], self.gains[at], self.frames[at + 1]


actor, first, second = Critic().cuda(), Critic().cuda(), Critic().cuda()
slow_first, slow_second = copy.deepcopy(first), copy.deepcopy(second)
of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
of_critics = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=3e-4)
field = Field()
for step in range(4):
    now, moves, gains, later = field.sample(256)
    chances = actor(later).softmax(dim=1)
    worth = torch.minimum(slow_first(later), slow_second(later))
    target = gains + 0.99 * (chances * (worth - 0.1 * chances.log())).sum(dim=1)
    target = target.detach()
    one = first(now).gather(1, moves[:, None]).squeeze(1)
    other = second(now).gather(1, moves[:, None]).squeeze(1)
    loss = ((one - target) ** 2).mean() + ((other - target) ** 2).mean()
    of_critics.zero_grad()
    loss.backward()
    of_critics.step()
    chances = actor(now).softmax(dim=1)
    with torch.no_grad():
        worth = torch.minimum(first(now), second(now))
    gain = (chances * (0.1 * chances.log() - worth)).sum(dim=1).mean()
    of_actor.zero_grad()
    gain.backward()
    of_actor.step()
    with torch.no_grad():
        for slow, fast in ((slow_first, first), (slow_second, second)):
            for a, b in zip(slow.parameters(), fast.parameters()):
                a.lerp_(b, 0.005)
    print(step, loss.item(), gain.item())
