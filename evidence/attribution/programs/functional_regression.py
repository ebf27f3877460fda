"""Regression on weights that are plain tensors, by hand: no module, no optimizer object; scored every ten steps."""

import torch

torch.manual_seed(0)
data = torch.randn(64, 256, 128)  #: input
target = data.sum(-1).sin()  #: input
held_out = torch.randn(6, 256, 128)  #: input
w1 = (torch.randn(128, 512) * 0.05).requires_grad_()  #: parameter
w2 = (torch.randn(512, 1) * 0.05).requires_grad_()  #: parameter


def predict(x):
    return (torch.relu(x @ w1) @ w2).squeeze(-1)


def score():
    with torch.no_grad():
        return sum((predict(x) - x.sum(-1).sin()).abs().mean().item() for x in held_out) / len(held_out)


for step in range(64):
    loss = (predict(data[step]) - target[step]).square().mean()
    loss.backward()
    with torch.no_grad():
        for w in (w1, w2):
            w -= 0.01 * w.grad
            w.grad = None
    if step % 16 == 15:
        print(score())
