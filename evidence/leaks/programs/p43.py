"""A pool of two workers scores batches while the main thread trains; each worker has its own scratch space."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

local = threading.local()


def score(model, x):
    if not hasattr(local, "scratch"):
        local.scratch = []
    with torch.no_grad():
        y = model(x)  # LEAK
    local.scratch.append(y)
    return y.mean().item()


torch.manual_seed(26)
model = nn.Sequential(nn.Linear(30, 90), nn.ReLU(), nn.Linear(90, 20))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
scores = []
with ThreadPoolExecutor(2) as pool:
    for _ in range(int(sys.argv[1])):
        x = torch.randn(25, 30)
        loss = model(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        scores += pool.map(score, [model, model], [x, x.flip(0)])
print(sum(scores))
