"""Born-again nets: each generation is a new student of the generation before, with an optimizer of its own.
Source: nocotan/born_again_neuralnet, train.py and infer.py: an ensemble of all generations.
"""
# STEPS 48

import sys

import torch
from torch import nn

LENGTH = 6


def student():
    return nn.Sequential(nn.Linear(24, 56), nn.ReLU(), nn.Linear(56, 8))  # LEAK


def batch():
    x = torch.randn(32, 24)
    return x, x[:, :8].argmax(dim=1)


def distil(logits, y, teacher_logits):
    soft = nn.functional.kl_div(logits.log_softmax(dim=1), teacher_logits.softmax(dim=1), reduction="batchmean")
    return 0.5 * nn.functional.cross_entropy(logits, y) + 0.5 * soft


torch.manual_seed(23)
generations, teacher = [], None
for number in range(int(sys.argv[1]) // LENGTH):
    net = student()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(LENGTH):
        x, y = batch()
        logits = net(x)
        if teacher is None:
            loss = nn.functional.cross_entropy(logits, y)
        else:
            with torch.no_grad():
                teacher_logits = teacher(x)
            loss = distil(logits, y, teacher_logits)
        opt.zero_grad()
        loss.backward()  # LEAK
        opt.step()  # LEAK
    generations.append((net, opt))  # LEAK
    teacher = net.eval()
    print(f"generation {number}: {loss.item():.4f}")
x, y = batch()
with torch.no_grad():
    votes = torch.stack([net(x) for net, _ in generations]).mean(dim=0)
print((votes.argmax(dim=1) == y).float().mean().item())
