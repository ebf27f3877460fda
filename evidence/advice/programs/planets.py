"""A cloud of dust falls together into planets, each grain pulling at every other."""

import argparse

import numpy as np
import torch


def cloud(n, seed):
    rng = np.random.default_rng(seed)
    where = rng.normal(size=(n, 3))
    speed = 0.1 * np.cross(where, [0.0, 0.0, 1.0])
    mass = rng.uniform(0.5, 1.5, size=n) / n
    return (torch.tensor(part, device="cuda") for part in (where, speed, mass))


def pull(where, mass, soft=0.05):
    n = len(where)
    mine = where.unsqueeze(1).repeat(1, n, 1)
    yours = where.unsqueeze(0).repeat(n, 1, 1)
    apart = yours - mine
    square = (apart**2).sum(dim=2) + soft**2
    strength = mass / square**1.5
    return (strength.unsqueeze(2) * apart).sum(dim=1)


def energy(where, speed, mass):
    moving = 0.5 * (mass * (speed**2).sum(dim=1)).sum()
    apart = torch.cdist(where, where)
    bound = (mass[:, None] * mass[None, :] / (apart + 0.05)).sum() / 2
    return moving - bound


def simulate(where, speed, mass, turns, dt):
    track, total = [], []
    force = pull(where, mass)
    for turn in range(turns):
        speed = speed + 0.5 * dt * force
        where = where + dt * speed
        force = pull(where, mass)
        speed = speed + 0.5 * dt * force
        track.append(where.clone())
        total.append(energy(where, speed, mass))
    return torch.stack(track), torch.stack(total)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2400)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--dt", type=float, default=0.01)
    args = parser.parse_args()
    where, speed, mass = cloud(args.n, seed=5)
    track, total = simulate(where, speed, mass, args.turns, args.dt)
    print(track.shape, (total[-1] / total[0]).item())


if __name__ == "__main__":
    main()
