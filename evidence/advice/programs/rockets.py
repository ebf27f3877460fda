"""A thousand toy rockets try to land upright, all at once, and are told afterwards how well they did."""

import math

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

device = torch.device("cuda")
N, T, OBS, ACT, WIDTH = 2048, 24, 18, 4, 384


class Rockets:
    """Simple physics in tensors, one row a rocket."""

    def __init__(self, n):
        self.state = torch.zeros(n, OBS, device=device)
        self.mix = torch.randn(ACT, OBS, device=device) / math.sqrt(OBS)

    def reset(self):
        self.state = torch.randn_like(self.state)
        return self.state

    def step(self, thrust):
        self.state = (0.95 * self.state + 0.1 * thrust @ self.mix).clamp(-5, 5)
        reward = -self.state.square().mean(dim=1)
        return self.state, reward


def mlp(out):
    return nn.Sequential(
        nn.Linear(OBS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(),
        nn.Linear(WIDTH, out),
    )


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(ACT), mlp(1)
        self.log_std = nn.Parameter(torch.zeros(ACT))

    def policy(self, obs):
        return Normal(self.actor(obs), self.log_std.exp(), validate_args=False)

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


def rollout(env, agent):
    obs = env.reset()
    seen = {"obs": [], "action": [], "logp": [], "value": [], "reward": []}
    for _ in range(T):
        dist = agent.policy(obs)
        action = dist.sample()
        seen["obs"].append(obs)
        seen["action"].append(action)
        seen["logp"].append(dist.log_prob(action).sum(-1))
        seen["value"].append(agent.value(obs))
        obs, reward = env.step(action)
        seen["reward"].append(reward)
    return {key: torch.stack(rows) for key, rows in seen.items()}, agent.value(obs)


def advantages(reward, value, last, gamma=0.99, lam=0.95):
    discount = torch.from_numpy(np.full(N, gamma)).to(device)
    out, running = [], torch.zeros(N, device=device)
    for t in reversed(range(T)):
        ahead = last if t == T - 1 else value[t + 1]
        running = reward[t] + discount * ahead - value[t] + discount * lam * running
        out.append(running)
    adv = torch.stack(out[::-1])
    return adv, adv + value


env, agent = Rockets(N), Agent().to(device)
opt = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
for iteration in range(2):
    data, last = rollout(env, agent)
    adv, returns = advantages(data["reward"], data["value"].detach(), last.detach())
    flat = {key: rows.detach().flatten(0, 1) for key, rows in data.items()}
    adv, returns = adv.flatten(), returns.flatten()
    for rows in torch.randperm(N * T).to(device).chunk(4):
        dist = agent.policy(flat["obs"][rows])
        logp = dist.log_prob(flat["action"][rows]).sum(-1)
        ratio = (logp - flat["logp"][rows]).exp()
        a = adv[rows]
        a = (a - a.mean()) / (a.std() + 1e-8)
        pg = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        vf = (agent.value(flat["obs"][rows]) - returns[rows]).pow(2).mean()
        loss = pg + 0.5 * vf - 0.01 * dist.entropy().sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
    print(iteration, loss.item(), data["reward"].mean().item())
