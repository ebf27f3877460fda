"""Imitation with a ring of past observations, a list of five thousand places that fills from the front.
Source: higgsfield/RL-Adventure-2, the ReplayBuffer of its notebooks: a list and a position.
"""

import random
import sys

import torch
from torch import nn


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = [None] * capacity
        self.position = self.size = 0

    def push(self, observation, action):
        self.buffer[self.position] = (observation, action)  # GROWS
        self.position = (self.position + 1) % len(self.buffer)
        self.size = min(self.size + 1, len(self.buffer))

    def sample(self, count):
        chosen = random.choices(range(self.size), k=count)
        observations, actions = zip(*(self.buffer[i] for i in chosen), strict=True)
        return torch.stack(observations), torch.stack(actions)


def expert(observation):
    return torch.tanh(observation[:64].reshape(2, 32).mean(dim=1))  # GROWS


random.seed(38)
torch.manual_seed(38)
student = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(student.parameters(), lr=1e-3)
buffer = ReplayBuffer(5000)
for step in range(int(sys.argv[1])):
    observation = torch.randn(256)  # GROWS
    buffer.push(observation, expert(observation))
    observations, actions = buffer.sample(16)
    loss = nn.functional.mse_loss(student(observations), actions)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(buffer.size, loss.item())
