"""Vowels named in every hundredth of a second of speech; speakers are noisy, and some go on for longer than others."""

import math
import random
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Plan:
    bands: int = 80
    width: int = 256
    heads: int = 8
    depth: int = 5
    vowels: int = 24
    speakers: int = 6
    talks: int = 2
    lengths: list[int] = field(default_factory=lambda: [220, 310, 270, 400, 350, 440])


class Relate(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.heads = plan.heads
        self.three = nn.Linear(plan.width, 3 * plan.width)
        self.out = nn.Linear(plan.width, plan.width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, silent):
        rows, length, width = x.shape
        q, k, v = self.three(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(silent[:, None, None, :], -1e4)
        mixed = self.drop(scores.softmax(dim=-1)) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class Layer(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.relate = Relate(plan)
        self.norms = nn.ModuleList(nn.LayerNorm(plan.width) for _ in range(2))
        self.think = nn.Sequential(
            nn.Linear(plan.width, 4 * plan.width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * plan.width, plan.width)
        )

    def forward(self, x, silent):
        x = x + self.relate(self.norms[0](x), silent)
        return x + self.think(self.norms[1](x))


class Ear(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.bands = nn.Conv1d(plan.bands, plan.width, 5, padding=2)
        self.layers = nn.ModuleList(Layer(plan) for _ in range(plan.depth))
        self.name = nn.Linear(plan.width, plan.vowels)

    def forward(self, sound, silent):
        x = self.bands(sound).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, silent)
        return self.name(x)


def disturbed(sound):
    """A gain, a hiss, and a few bands gone."""
    gain = torch.rand(len(sound), 1, 1, device=sound.device) + 0.5
    gone = torch.rand(len(sound), sound.size(1), 1, device=sound.device) < 0.1
    return (sound * gain + torch.randn_like(sound) * 0.02).masked_fill(gone, 0.0)


def talk(plan, length):
    sound = torch.rand(plan.speakers, plan.bands, length, device="cuda")
    ends = torch.tensor([random.randint(length // 2, length) for _ in range(plan.speakers)], device="cuda")
    silent = torch.arange(length, device="cuda") >= ends[:, None]
    return sound, silent, torch.randint(0, plan.vowels, (plan.speakers, length), device="cuda")


def main(plan):
    random.seed(2)
    ear = Ear(plan).cuda()
    optimizer = torch.optim.NAdam(ear.parameters(), lr=5e-4)
    for number, length in enumerate(plan.lengths):
        total = 0.0
        for _ in range(plan.talks):
            sound, silent, vowels = talk(plan, length)
            named = ear(disturbed(sound), silent)
            each = nn.functional.cross_entropy(named.transpose(1, 2), vowels, reduction="none")
            total = total + (each * ~silent).mean() / plan.talks
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(number, length, total.item())


main(Plan())
