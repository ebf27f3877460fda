"""Off-policy learning from a ring of transitions that holds the last two hundred."""

import random
import sys

import torch
from torch import nn


class Replay:
    def __init__(self, capacity):
        self.capacity, self.items, self.at = capacity, [], 0

    def push(self, item):
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[self.at] = item
        self.at = (self.at + 1) % self.capacity

    def sample(self, n):
        return map(torch.stack, zip(*random.sample(self.items, n)))


random.seed(39)
torch.manual_seed(39)
value, target = nn.Linear(6, 3), nn.Linear(6, 3)
target.load_state_dict(value.state_dict())
opt = torch.optim.Adam(value.parameters(), lr=1e-3)
replay = Replay(200)
state = torch.randn(6)
for step in range(int(sys.argv[1])):
    for _ in range(16):
        action = random.randrange(3)
        following = 0.9 * state + 0.1 * torch.randn(6)
        replay.push((state, torch.tensor(action), following[action].clone(), following))
        state = following
    s, a, r, f = replay.sample(12)
    with torch.no_grad():
        goal = r + 0.9 * target(f).max(dim=1).values
    loss = nn.functional.smooth_l1_loss(value(s).gather(1, a[:, None])[:, 0], goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        target.load_state_dict(value.state_dict())
print(loss.item(), len(replay.items))
