"""Soft Q-learning whose buffer is allocated once, as tensors of its full length, and filled row by row.
Source: openai/spinningup, spinup/algos/pytorch/sac: a buffer that is allocated at once.
"""

import sys

import torch
from torch import nn


class Buffer:
    def __init__(self, observations, actions, size):
        self.observations = torch.zeros(size, observations)
        self.following = torch.zeros(size, observations)
        self.actions = torch.zeros(size, actions)
        self.rewards = torch.zeros(size)
        self.at, self.size, self.capacity = 0, 0, size

    def store(self, observation, action, reward, following):
        self.observations[self.at], self.following[self.at] = observation, following
        self.actions[self.at], self.rewards[self.at] = action, reward
        self.at = (self.at + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, count):
        index = torch.randint(0, self.size, (count,))
        return self.observations[index], self.actions[index], self.rewards[index], self.following[index]


torch.manual_seed(39)
q = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
policy = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
opt_q, opt_p = torch.optim.Adam(q.parameters(), lr=1e-3), torch.optim.Adam(policy.parameters(), lr=1e-3)
buffer = Buffer(6, 2, 4000)
observation = torch.zeros(6)
for step in range(int(sys.argv[1])):
    with torch.no_grad():
        action = policy(observation) + 0.1 * torch.randn(2)
    following = (0.9 * observation + torch.cat([action, action, action]) * 0.1).clamp(-3, 3)
    buffer.store(observation, action, -following.square().sum(), following)
    observation = following
    o, a, r, f = buffer.sample(16)
    with torch.no_grad():
        backup = r + 0.99 * q(torch.cat([f, policy(f)], dim=1)).squeeze(1)
    loss_q = nn.functional.mse_loss(q(torch.cat([o, a], dim=1)).squeeze(1), backup)
    opt_q.zero_grad()
    loss_q.backward()
    opt_q.step()
    loss_p = -q(torch.cat([o, policy(o)], dim=1)).mean()
    opt_p.zero_grad()
    loss_p.backward()
    opt_p.step()
print(buffer.size, loss_q.item(), loss_p.item())
