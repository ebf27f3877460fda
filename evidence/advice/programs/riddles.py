"""Given five examples of each of five strange signs, guess the sixth; after many such riddles guessing gets quick."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad

WAYS, SHOTS, QUERIES, SIDE = 5, 5, 15, 42


def layer(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.ReLU(), nn.MaxPool2d(2))


class Guesser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(layer(3, width), layer(width, width), layer(width, width))
        self.head = nn.Linear(width * 25, WAYS)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def riddle():
    signs = torch.rand(WAYS * (SHOTS + QUERIES), 3, SIDE, SIDE, device="cuda")
    names = torch.arange(WAYS, device="cuda").repeat(SHOTS + QUERIES)
    cut = WAYS * SHOTS
    return (signs[:cut], names[:cut]), (signs[cut:], names[cut:])


def loss_of(net, weights, signs, names):
    return F.cross_entropy(functional_call(net, weights, (signs,)), names)


def adapt(net, weights, support, turns, rate=0.05):
    wanted = partial(loss_of, net)
    for _ in range(turns):
        slopes = grad(wanted)(weights, *support)
        weights = {name: weights[name] - rate * slopes[name] for name in weights}
    return weights


def train(net, optimizer, rounds=3, riddles=4):
    for _ in range(rounds):
        losses = []
        for _ in range(riddles):
            support, query = riddle()
            quick = adapt(net, dict(net.named_parameters()), support, turns=3)
            losses.append(loss_of(net, quick, *query))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


def examine(net, riddles=6):
    right = []
    for _ in range(riddles):
        support, (signs, names) = riddle()
        quick = adapt(net, dict(net.named_parameters()), support, turns=8)
        answers = functional_call(net, quick, (signs,))
        right.append((answers.argmax(1) == names).float().mean())
    return torch.stack(right).mean().item()


net = Guesser().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
train(net, optimizer)
print(examine(net))
