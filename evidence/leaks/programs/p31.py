"""Policy gradient on a toy corridor, episodes of varying length."""

import sys

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.log_probs = []
        self.rewards = []

    def act(self, state):
        choice = torch.distributions.Categorical(logits=self.body(state))
        action = choice.sample()
        self.log_probs.append(choice.log_prob(action))
        return int(action)


def episode(policy):
    position, clock = 0, 0
    while abs(position) < 4 and clock < 15:
        state = torch.tensor([position / 4, clock / 15, 1.0, float(position > 0)])
        position += 1 if policy.act(state) else -1
        policy.rewards.append(1.0 if position == 4 else -0.05)
        clock += 1


def learn(policy, opt):
    returns, running = [], 0.0
    for r in reversed(policy.rewards):
        running = r + 0.97 * running
        returns.insert(0, running)
    returns = torch.tensor(returns)
    loss = -(torch.stack(policy.log_probs) * (returns - returns.mean())).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    policy.log_probs.clear()
    policy.rewards.clear()
    return running


torch.manual_seed(16)
policy = Policy()
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
history = []
for _ in range(int(sys.argv[1])):
    episode(policy)
    history.append(learn(policy, opt))
print(sum(history) / len(history))
