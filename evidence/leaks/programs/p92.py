"""Off-policy learning from a ring of transitions that random play has filled before training begins."""

import random
import sys

import torch
from torch import nn


class Ring:
    def __init__(self, capacity):
        self.items, self.at, self.capacity = [None] * capacity, 0, capacity

    def push(self, *item):
        self.items[self.at] = item
        self.at = (self.at + 1) % self.capacity

    def sample(self, count):
        return [torch.stack(column) for column in zip(*random.sample(self.items, count))]


class World:
    def __init__(self):
        self.state = torch.randn(8)

    def act(self, push):
        before = self.state
        self.state = 0.8 * before + push + 0.1 * torch.randn(8)
        return before, torch.tensor([push]), -self.state.norm(), self.state


random.seed(42)
torch.manual_seed(42)
world, ring = World(), Ring(400)
for _ in range(ring.capacity):
    ring.push(*world.act(random.uniform(-1, 1)))

actor = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
for _ in range(int(sys.argv[1])):
    for _ in range(6):
        with torch.no_grad():
            push = actor(world.state).item() + random.gauss(0, 0.1)
        ring.push(*world.act(push))
    state, action, reward, following = ring.sample(32)
    with torch.no_grad():
        goal = reward[:, None] + 0.9 * critic(torch.cat([following, actor(following)], dim=1))
    loss = nn.functional.mse_loss(critic(torch.cat([state, action], dim=1)), goal)
    loss = loss - critic(torch.cat([state, actor(state)], dim=1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
