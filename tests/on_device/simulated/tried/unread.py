"""What nothing reads again, and is there all the same: of each case as it is, and with its change by hand."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def held(by_hand):
    """A variable holds what two products have read already."""
    first = torch.rand(1024, 1024, device="cuda")

    def power(frames):
        frames = frames * 2
        real, imaginary = frames @ first, frames @ first.T
        if by_hand:
            del frames
        return torch.cat([real, imaginary]).sum(1)

    with torch.no_grad():
        for _ in range(3):
            print(power(torch.rand(4096, 1024, device="cuda")).shape)


def graph(by_hand):
    """Within a step that trains: a second model's graph, which no backward pass runs, until its name is bound again."""
    models = [
        nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh()))).cuda() for _ in "ab"
    ]
    model, other = models
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(4096, 256, device="cuda")
        with torch.set_grad_enabled(by_hand != "no_grad"):
            goal = other(x).mean(1)
        loss = F.mse_loss(model(x).mean(1), goal.detach())
        if by_hand == "release":
            del goal
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def elementwise(by_hand):
    """The last reader of its input writes as much again; ReLU behind a layer is not at the peak."""
    layer = nn.Linear(1024, 1024).cuda()
    with torch.no_grad():
        for _ in range(3):
            x = F.relu(layer(torch.rand(4096, 1024, device="cuda")))
            x = torch.cat([x, x, x])
            x = x.mul_(0.5) if by_hand else x * 0.5
            print(x.shape)


def leaky(by_hand):
    """Autograd keeps the input, and would keep the output where that lies in it."""
    layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6)).cuda()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(4096, 512, device="cuda")
        for layer in layers:
            x = layer(x)
            x = F.leaky_relu(x, 0.1, inplace=bool(by_hand))
        optimizer.zero_grad()
        x.mean().backward()
        optimizer.step()


CASES = {function.__name__: function for function in (held, graph, elementwise, leaky)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--hand", default="")
    options = parser.parse_args()
    CASES[options.case](options.hand)
