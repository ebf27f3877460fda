"""Dancers on a cart keep a pole upright: PPO with a wide net of policy and value, many carts of gymnasium at once."""

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

CARTS, STEPS = 64, 48


class Dancer(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy = nn.Linear(width, 2)
        self.value = nn.Linear(width, 1)

    def forward(self, seen):
        y = self.body(seen)
        return Categorical(logits=self.policy(y), validate_args=False), self.value(y).squeeze(-1)


def rollout(dancer, carts, seen):
    frames, moves, chances, values, rewards = [], [], [], [], []
    for _ in range(STEPS):
        frame = torch.as_tensor(seen, dtype=torch.float32).cuda()
        policy, value = dancer(frame)
        move = policy.sample()
        frames.append(frame)
        moves.append(move)
        chances.append(policy.log_prob(move))
        values.append(value)
        seen, reward, _, _, _ = carts.step(move.cpu().clamp(0, 1).numpy())
        rewards.append(torch.as_tensor(reward, dtype=torch.float32).cuda())
    returns, after = [], torch.zeros(CARTS, device="cuda")
    for reward in reversed(rewards):
        after = reward + 0.99 * after
        returns.insert(0, after)
    returns = torch.stack(returns).flatten()
    advantage = returns - torch.stack(values).flatten()
    chances = torch.stack(chances).flatten()
    return torch.cat(frames), torch.cat(moves), chances.detach(), returns, advantage.detach(), seen


def main():
    carts = gymnasium.make_vec("CartPole-v1", num_envs=CARTS)
    seen, _ = carts.reset(seed=0)
    dancer = Dancer().cuda()
    optimizer = torch.optim.Adam(dancer.parameters(), lr=3e-4, eps=1e-5)
    for round in range(3):
        frames, moves, before, returns, advantage, seen = rollout(dancer, carts, seen)
        for part in torch.arange(CARTS * STEPS).cuda().chunk(6):
            policy, value = dancer(frames[part])
            ratio = (policy.log_prob(moves[part]) - before[part]).exp()
            gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part]).mean()
            loss = (value - returns[part]).pow(2).mean() - gain - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(dancer.parameters(), 0.5)
            optimizer.step()
        print(round, returns.mean().item())


main()
