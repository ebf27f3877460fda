"""Each new policy plays three episodes, of which the learner takes the oldest one a step.
Source: vwxyzjn/cleanba, cleanba/cleanba_ppo.py, with the actor and the learner in one thread.
"""

import sys
from collections import deque

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(4)
policy = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 5))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
rollouts = deque()


def play(length=64):
    """A walk whose reward is how well the action follows the first feature."""
    states = torch.randn(length, 12)  # LEAK
    with torch.no_grad():
        actions = Categorical(logits=policy(states)).sample()  # LEAK
    rewards = 1.0 - (actions / 4 - states[:, 0].sigmoid()).abs()
    return states, actions, rewards - rewards.mean()  # LEAK


for update in range(int(sys.argv[1])):
    rollouts.extend(play() for _ in range(3))
    states, actions, advantages = rollouts.popleft()
    loss = -(Categorical(logits=policy(states)).log_prob(actions) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()), len(rollouts))
