"""Deep Q-learning on a toy control task; the memory holds ten thousand transitions and is far from full.
Source: pytorch/tutorials, intermediate_source/reinforcement_q_learning.py.
"""

import random
import sys
from collections import deque, namedtuple

import torch
from torch import nn

Transition = namedtuple("Transition", ("state", "action", "following", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, count):
        return random.sample(self.memory, count)

    def __len__(self):
        return len(self.memory)


def move(state, action):
    push = 0.05 * (2 * action.item() - 1)
    return (state.roll(1, dims=1) * 0.98 + push + 0.1 * torch.randn(1, 256)).clamp(-2, 2)  # GROWS


def optimize():
    if len(memory) < 8:
        return
    batch = Transition(*zip(*memory.sample(8), strict=True))
    values = policy(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    with torch.no_grad():
        following = target(torch.cat(batch.following)).max(1).values
    expected = following * 0.99 + torch.cat(batch.reward)
    loss = nn.functional.smooth_l1_loss(values, expected.unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    opt.step()


random.seed(37)
torch.manual_seed(37)
policy, target = (nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in range(2))
opt = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
memory = ReplayMemory(10000)
state = torch.zeros(1, 256)
for step in range(int(sys.argv[1])):
    action = torch.tensor([[random.randrange(2)]])  # GROWS
    following = move(state, action)
    reward = 1 - following.abs().max().reshape(1)  # GROWS
    memory.push(state, action, following, reward)  # GROWS
    state = following
    optimize()
    for slow, fast in zip(target.parameters(), policy.parameters(), strict=True):
        slow.data.lerp_(fast.data, 0.005)
print(len(memory), state.mean().item())
