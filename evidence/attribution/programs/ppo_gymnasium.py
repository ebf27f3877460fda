"""PPO on CartPole: a roll-out under no_grad, then four epochs of updates."""

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
env = gymnasium.make("CartPole-v1")
actor = nn.Sequential(nn.Linear(4, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 2))
critic = nn.Sequential(nn.Linear(4, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
observation, _ = env.reset(seed=0)
for iteration in range(3):
    states, actions, logs, rewards, values = [], [], [], [], []
    with torch.no_grad():
        for t in range(128):
            state = torch.as_tensor(observation, dtype=torch.float32)
            policy = Categorical(logits=actor(state))
            action = policy.sample()
            states.append(state)
            actions.append(action)
            logs.append(policy.log_prob(action))
            values.append(critic(state)[0])
            observation, reward, done, cut, _ = env.step(int(action))
            rewards.append(reward)
            if done or cut:
                observation, _ = env.reset()
    states, actions, logs = torch.stack(states), torch.stack(actions), torch.stack(logs)
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    advantage = returns - torch.stack(values)
    for epoch in range(4):
        for part in torch.randperm(128).split(32):
            policy = Categorical(logits=actor(states[part]))
            ratio = (policy.log_prob(actions[part]) - logs[part]).exp()
            gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part])
            loss = -gain.mean() + 0.5 * (critic(states[part])[:, 0] - returns[part]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
