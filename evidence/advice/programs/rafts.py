"""Double DQN that steers a raft down a river of pixels, with a replay memory."""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

GAMMA = 0.99
BATCH_SIZE = 512
MEMORY_SIZE = 3000
LEARNING_RATE = 2.5e-4
TARGET_UPDATE = 2
EPSILON = 0.1
UPDATES = 6
ACTIONS = 5


class River:
    """Frames of 84 x 84; the raft drifts, an episode ends after some strokes."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.frames = None
        self.stroke = 0

    def _frame(self):
        banks = self.rng.integers(5, 30, size=(84, 2))
        frame = np.zeros((84, 84), dtype=np.float32)
        for y in range(84):
            frame[y, banks[y, 0] : 84 - banks[y, 1]] = 1.0
        return frame

    def reset(self):
        self.stroke = 0
        self.frames = np.stack([self._frame()] * 4)
        return self.frames

    def step(self, action):
        self.stroke += 1
        self.frames = np.concatenate([self.frames[1:], self._frame()[None]])
        reward = float(action == self.stroke % ACTIONS)
        return self.frames, reward, self.stroke >= 20


class DQN(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
        )
        self.fc = nn.Sequential(nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, n_actions))

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity, self.position, self.size = capacity, 0, 0
        self.states = torch.zeros(capacity, 4, 84, 84, device=DEVICE)
        self.next_states = torch.zeros(capacity, 4, 84, 84, device=DEVICE)
        self.actions = torch.zeros(capacity, dtype=torch.long, device=DEVICE)
        self.rewards = torch.zeros(capacity, device=DEVICE)
        self.dones = torch.zeros(capacity, device=DEVICE)

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i] = torch.from_numpy(state)
        self.next_states[i] = torch.from_numpy(next_state)
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, float(done)
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        idx = torch.randint(0, self.size, (batch_size,))
        return [a[idx] for a in (self.states, self.actions, self.rewards, self.next_states, self.dones)]


policy_net = DQN(ACTIONS).to(DEVICE)
target_net = DQN(ACTIONS).to(DEVICE)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.Adam(policy_net.parameters(), lr=LEARNING_RATE)
memory = ReplayMemory(MEMORY_SIZE)
env = River()


def select_action(state):
    if random.random() < EPSILON:
        return random.randrange(ACTIONS)
    q = policy_net(torch.from_numpy(state).unsqueeze(0).to(DEVICE))
    return q.argmax(dim=1).item()


def optimize_model():
    states, actions, rewards, next_states, dones = memory.sample(BATCH_SIZE)

    q_values = policy_net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    next_actions = policy_net(next_states).argmax(dim=1, keepdim=True)
    next_q_values = target_net(next_states).gather(1, next_actions).squeeze(1)
    expected = rewards + GAMMA * next_q_values * (1 - dones)

    loss = nn.functional.smooth_l1_loss(q_values, expected)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy_net.parameters(), 1.0)
    optimizer.step()
    return loss.item()


state = env.reset()
for _ in range(60):
    action = select_action(state)
    next_state, reward, done = env.step(action)
    memory.push(state, action, reward, next_state, done)
    state = env.reset() if done else next_state

for update in range(UPDATES):
    loss = optimize_model()
    if update % TARGET_UPDATE == 0:
        target_net.load_state_dict(policy_net.state_dict())
    print(f"update {update}: loss {loss:.4f}")
