"""A generator makes batches eight ahead, in a deque; validation takes some from another generator inside the epoch."""

from collections import deque

import torch
from torch import nn

torch.manual_seed(0)


def batches(n):
    for _ in range(n):
        x = torch.randn(128, 3, 16, 16)  #: input
        yield x, x.mean((1, 2, 3)).gt(0).long()


def ahead(iterator, depth=8):
    waiting = deque()
    for item in iterator:
        waiting.append(item)
        if len(waiting) >= depth:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 2))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for i, (x, y) in enumerate(ahead(batches(30))):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 9:
            model.eval()
            with torch.no_grad():
                right = sum((model(x).argmax(1) == y).sum().item() for x, y in batches(5))
            model.train()
