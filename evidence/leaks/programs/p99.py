"""Logistic regression with updates written by hand, in epochs over slices of the data.
Source: pytorch/tutorials, beginner_source/nn_tutorial.py.
"""

import math
import sys

import torch
from torch import nn


class Logistic(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(64, 10) / math.sqrt(64))
        self.bias = nn.Parameter(torch.zeros(10))

    def forward(self, x):
        return x @ self.weights + self.bias


def fit(model, x, y, steps, batch=32, lr=0.5):
    done = 0
    while done < steps:
        for start in range(0, len(x), batch):
            if done == steps:
                break
            loss = nn.functional.cross_entropy(model(x[start : start + batch]), y[start : start + batch])
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= p.grad * lr
                model.zero_grad()
            done += 1
        with torch.no_grad():
            accuracy = (model(x).argmax(dim=1) == y).float().mean()
        print(f"{done} steps, loss {loss.item():.4f}, accuracy {accuracy.item():.3f}")


torch.manual_seed(6)
x = torch.rand(256, 64)
y = x[:, :10].argmax(dim=1)
fit(Logistic(), x, y, int(sys.argv[1]))
