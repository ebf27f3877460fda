"""A robot in a garden learns where to go: a convolutional net of values, a copy of it that follows later, seen frames."""

import copy
import random

import torch
import torch.nn.functional as F
from torch import nn


class Values(nn.Module):
    def __init__(self, moves):
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
        )
        self.mind = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, moves))

    def forward(self, frames):
        return self.mind(self.eye(frames / 255.0))


online = Values(6).cuda()
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
memory = []
for _ in range(64):
    memory.append((torch.randint(0, 255, (16, 4, 84, 84), dtype=torch.uint8), random.randrange(6), random.random()))

for step in range(6):
    picked = random.sample(memory, 16)
    frames = torch.cat([frame for frame, _, _ in picked]).cuda().float()
    after = torch.cat([frame for frame, _, _ in reversed(picked)]).cuda().float()
    moves = torch.tensor([move for _, move, _ in picked for _ in range(16)]).cuda()
    rewards = torch.tensor([reward for _, _, reward in picked for _ in range(16)]).cuda()

    value = online(frames).gather(1, moves[:, None]).squeeze(1)
    goal = rewards + 0.99 * target(after).max(1).values
    loss = F.smooth_l1_loss(value, goal.detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        target.load_state_dict(online.state_dict())
