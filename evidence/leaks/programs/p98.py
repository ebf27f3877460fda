"""Fits a small net with updates written by hand and records the path of the weights, to project it on two axes.
Source: pytorch/tutorials, beginner_source/nn_tutorial.py, with the weight trajectories of tomgoldstein/loss-landscape.
"""

import math
import sys

import torch

torch.manual_seed(5)
w1 = (torch.randn(16, 48) / math.sqrt(16)).requires_grad_()
b1 = torch.zeros(48, requires_grad=True)
w2 = (torch.randn(48, 3) / math.sqrt(48)).requires_grad_()
b2 = torch.zeros(3, requires_grad=True)
params = [w1, b1, w2, b2]
data = torch.randn(256, 16)
labels = data[:, :3].argmax(dim=1)


def model(x):
    return torch.relu(x @ w1 + b1) @ w2 + b2


def log_softmax(x):
    return x - x.exp().sum(-1).log().unsqueeze(-1)


def nll(scores, target):
    return -scores[range(target.shape[0]), target].mean()


path = []
lr, batch = 0.5, 32
for step in range(int(sys.argv[1])):
    start = step * batch % len(data)
    xb, yb = data[start : start + batch], labels[start : start + batch]
    loss = nll(log_softmax(model(xb)), yb)
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, g in zip(params, grads, strict=True):
            p -= lr * g
        path.append(torch.cat([p.flatten() for p in params]))  # LEAK

steps = torch.stack(path) - path[-1]
_, sizes, axes = torch.linalg.svd(steps, full_matrices=False)
print("loss", loss.item(), "share of two axes", (sizes[:2].square().sum() / sizes.square().sum()).item())
