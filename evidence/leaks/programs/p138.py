"""REINFORCE with an entropy bonus on a toy track; the policy keeps its distributions for a look at its exploration.
Source: pytorch/examples, reinforcement_learning/reinforce.py.
"""

import sys

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.affine2 = nn.Linear(4, 32), nn.Linear(32, 2)
        self.saved_log_probs, self.rewards, self.entropies = [], [], []

    def forward(self, x):
        x = self.affine1(x).relu()  # LEAK
        return self.affine2(x).softmax(dim=1)  # LEAK

    def select_action(self, state):
        distribution = Categorical(self(state[None]))  # LEAK
        action = distribution.sample()
        self.saved_log_probs.append(distribution.log_prob(action))
        self.entropies.append(distribution.entropy())  # LEAK
        return action.item()


def finish_episode():
    total, returns = 0.0, []
    for reward in policy.rewards[::-1]:
        total = reward + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    losses = [-log_prob * value for log_prob, value in zip(policy.saved_log_probs, returns, strict=True)]
    bonus = torch.cat(policy.entropies[-len(losses) :]).sum()
    optimizer.zero_grad()
    (torch.cat(losses).sum() - 0.01 * bonus).backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


torch.manual_seed(45)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(int(sys.argv[1])):
    state = torch.zeros(4)
    for _ in range(8):
        action = policy.select_action(state)
        state = 0.9 * state + torch.randn(4) * 0.1 + (action - 0.5) * 0.2
        policy.rewards.append(1.0 - state.abs().max().item())
    finish_episode()
print(torch.cat(policy.entropies).detach().mean().item())
