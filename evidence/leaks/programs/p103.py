"""Twin critics with a delayed policy: the actor is updated with every second update of the critics.
Source: sfujim/TD3, TD3.py and main.py.
"""

import copy
import sys

import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(5, 32), nn.Linear(32, 2)

    def forward(self, state):
        return torch.tanh(self.l2(self.l1(state).relu()))  # LEAK


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1 = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
        self.q2 = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state, action):
        both = torch.cat([state, action], 1)  # LEAK
        return self.q1(both), self.q2(both)  # LEAK


class Agent:
    def __init__(self):
        self.actor, self.critic = Actor(), Critic()
        self.actor_target, self.critic_target = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.policy_losses, self.calls = [], 0

    def train(self, state, action, following, reward):
        self.calls += 1
        with torch.no_grad():
            noise = (torch.randn_like(action) * 0.2).clamp(-0.5, 0.5)
            target = torch.min(*self.critic_target(following, self.actor_target(following) + noise))
            target = reward + 0.99 * target
        q1, q2 = self.critic(state, action)
        loss = nn.functional.mse_loss(q1, target) + nn.functional.mse_loss(q2, target)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        if self.calls % 2 == 0:
            policy_loss = -self.critic(state, self.actor(state))[0].mean()  # LEAK
            self.actor_opt.zero_grad()
            policy_loss.backward()
            self.actor_opt.step()
            self.policy_losses.append(policy_loss)  # LEAK
            for net, slow in ((self.critic, self.critic_target), (self.actor, self.actor_target)):
                for p, q in zip(net.parameters(), slow.parameters(), strict=True):
                    q.data.copy_(0.005 * p.data + 0.995 * q.data)


torch.manual_seed(10)
agent = Agent()
for _ in range(int(sys.argv[1])):
    agent.train(torch.randn(16, 5), torch.rand(16, 2), torch.randn(16, 5), torch.randn(16, 1))
print("policy loss", agent.policy_losses[-1].item())
