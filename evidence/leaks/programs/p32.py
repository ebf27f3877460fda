"""Actor and critic on a toy pendulum; episodes are remembered for the off-policy part."""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Pendulum:
    def reset(self):
        self.angle, self.speed = math.pi * 0.9, 0.0
        return self.look()

    def look(self):
        return torch.tensor([math.cos(self.angle), math.sin(self.angle), self.speed])

    def step(self, push):
        self.speed += 0.1 * math.sin(self.angle) + 0.05 * push
        self.angle += 0.1 * self.speed
        return self.look(), math.cos(self.angle)  # the higher the better


class Agent:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.opt = torch.optim.Adam([*self.actor.parameters(), *self.critic.parameters()], lr=3e-3)
        self.memory = []

    def play(self, world, length=6):
        state = world.reset()
        values, log_probs, rewards = [], [], []
        for _ in range(length):
            normal = torch.distributions.Normal(self.actor(state), 0.5)  # LEAK
            push = normal.sample()
            log_prob = normal.log_prob(push)  # LEAK
            value = self.critic(state)  # LEAK
            state, reward = world.step(float(push))
            values.append(value)
            log_probs.append(log_prob)
            rewards.append(reward)
        return values, log_probs, rewards

    def learn(self, values, log_probs, rewards):
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0).unsqueeze(1)
        values, log_probs = torch.stack(values), torch.stack(log_probs)
        advantage = returns - values.detach()
        loss = -(log_probs * advantage).mean() + F.mse_loss(values, returns)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

    def run(self, episodes):
        world = Pendulum()
        for _ in range(episodes):
            played = self.play(world)
            self.learn(*played)
            self.memory.append(played)
        return len(self.memory)


torch.manual_seed(17)
print(Agent().run(int(sys.argv[1])))
