"""Proximal policy optimisation: rollouts into fixed buffers, then epochs of minibatches over them.
Source: vwxyzjn/cleanrl, cleanrl/ppo.py.
"""

import sys
from collections import deque

import torch
from torch import nn
from torch.distributions import Categorical

STEPS, ENVS = 12, 4


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 3))

    def act(self, x, action=None):
        distribution = Categorical(logits=self.actor(x))
        action = distribution.sample() if action is None else action
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(x).squeeze(-1)


def advantages(rewards, values, last):
    gains, carry = torch.zeros_like(rewards), 0.0
    for t in reversed(range(STEPS)):
        following = last if t == STEPS - 1 else values[t + 1]
        carry = rewards[t] + 0.99 * following - values[t] + 0.99 * 0.95 * carry
        gains[t] = carry
    return gains


torch.manual_seed(46)
agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs, actions = torch.zeros(STEPS, ENVS, 5), torch.zeros(STEPS, ENVS, dtype=torch.long)
logprobs, rewards, values = torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS), torch.zeros(STEPS, ENVS)
state, recent = torch.zeros(ENVS, 5), deque(maxlen=4)
for iteration in range(int(sys.argv[1]) // 4):
    for t in range(STEPS):
        obs[t] = state
        with torch.no_grad():
            actions[t], logprobs[t], _, values[t] = agent.act(state)
        state = 0.95 * state + 0.1 * torch.randn(ENVS, 5) + (actions[t, :, None] - 1) * 0.1
        rewards[t] = -state.abs().mean(dim=1)
    with torch.no_grad():
        gains = advantages(rewards, values, agent.critic(state).squeeze(-1))
    recent.append(rewards.mean())
    targets = (gains + values).flatten()
    for _ in range(2):
        for index in torch.randperm(STEPS * ENVS).split(24):
            _, logprob, entropy, value = agent.act(obs.flatten(0, 1)[index], actions.flatten()[index])
            ratio = (logprob - logprobs.flatten()[index]).exp()
            gain = gains.flatten()[index]
            policy_loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = policy_loss - 0.01 * entropy.mean() + 0.5 * (value - targets[index]).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            opt.step()
    print(iteration, loss.item(), torch.stack(list(recent)).mean().item())
