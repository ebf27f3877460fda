"""A mouse looks at small pictures of its maze and learns which way the cheese lies."""

import random
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    capacity: int = 2000
    sample: int = 512
    warmup: int = 120
    gamma: float = 0.99
    lr: float = 1e-4
    updates: int = 5
    device: str = "cuda"


class Maze(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.look(), {}

    def look(self):
        return self.np_random.integers(0, 256, (4, 84, 84), dtype=np.uint8)

    def step(self, action):
        self.age += 1
        return self.look(), float(self.np_random.random()), self.age % 40 == 0, False, {}


class Replay:
    def __init__(self, capacity, device):
        self.device = device
        self.states = torch.zeros(capacity, 4, 84, 84, device=device)
        self.following = torch.zeros(capacity, 4, 84, 84, device=device)
        self.actions = torch.zeros(capacity, dtype=torch.long, device=device)
        self.rewards = torch.zeros(capacity, device=device)
        self.done = torch.zeros(capacity, device=device)
        self.size = 0

    def add(self, state, action, reward, following, done):
        i = self.size % len(self.rewards)
        self.states[i] = torch.from_numpy(state) / 255
        self.following[i] = torch.from_numpy(following) / 255
        self.actions[i], self.rewards[i], self.done[i] = action, reward, float(done)
        self.size += 1

    def draw(self, count):
        rows = torch.randint(0, min(self.size, len(self.rewards)), (count,))
        parts = self.states, self.actions, self.rewards, self.following, self.done
        return [part[rows.to(part.device)] for part in parts]


class QNetwork(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(), nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, x):
        return self.head(self.eyes(x))


def learn(q, target, optimizer, memory, cfg):
    states, actions, rewards, following, done = memory.draw(cfg.sample)
    value = q(states).gather(1, actions[:, None]).squeeze(1)
    ahead = target(following).max(dim=1).values
    goal = rewards + cfg.gamma * (1 - done) * ahead
    loss = F.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    cfg = Settings()
    env = Maze()
    q, target = QNetwork(5).to(cfg.device), QNetwork(5).to(cfg.device)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=cfg.lr)
    memory = Replay(cfg.capacity, cfg.device)
    state, _ = env.reset(seed=1)
    for turn in range(cfg.warmup):
        action = random.randrange(5)
        following, reward, done, _, _ = env.step(action)
        memory.add(state, action, reward, following, done)
        state = env.reset()[0] if done else following
    for turn in range(cfg.updates):
        print(turn, learn(q, target, optimizer, memory, cfg))


main()
