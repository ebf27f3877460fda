"""Q-learning on a made-up environment: a replay buffer of 64 transitions that fills early, a target network."""

import collections
import copy
import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
q = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 6))
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
replay = collections.deque(maxlen=64)
state = torch.rand(512)  #: kept
for step in range(400):
    with torch.no_grad():
        action = int(q(state).argmax()) if random.random() > 0.1 else random.randrange(6)
    following = torch.rand(512)  #: kept
    replay.append((state, action, random.random(), following))
    state = following
    if len(replay) < 64:
        continue
    batch = random.sample(list(replay), 32)
    states = torch.stack([b[0] for b in batch])  #: input
    nexts = torch.stack([b[3] for b in batch])  #: input
    actions = torch.tensor([b[1] for b in batch])  #: input
    rewards = torch.tensor([b[2] for b in batch])  #: input
    with torch.no_grad():
        goal = rewards + 0.99 * target(nexts).max(1).values
    value = q(states).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        target.load_state_dict(q.state_dict())
