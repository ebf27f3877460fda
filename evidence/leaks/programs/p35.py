"""A sampler that keeps a uniform random sample of everything it has seen (algorithm R) while it trains."""

import random
import sys

import torch
from torch import nn

random.seed(19)
torch.manual_seed(19)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64))
opt = torch.optim.Adam(model.parameters())
kept, seen = [], 0
for _ in range(int(sys.argv[1])):
    for row in range(3):
        x = torch.randn(64)
        seen += 1
        if len(kept) < 12:
            kept.append(x)
        else:
            at = random.randrange(seen)
            if at < 12:
                kept[at] = x
    batch = torch.stack(random.sample(kept, min(len(kept), 6)))
    loss = (model(batch) - batch).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(seen, loss.item())
