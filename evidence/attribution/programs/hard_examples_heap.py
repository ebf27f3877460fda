"""A heap has the 256 images with the largest losses; it is full after eight batches."""

import heapq
import itertools

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 32, 3, stride=2), nn.Flatten(), nn.Linear(32 * 7 * 7, 20)
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
hardest = []
order = itertools.count()
for step in range(80):
    images, labels = torch.rand(32, 3, 64, 64), torch.randint(0, 20, (32,))  #: input
    losses = nn.functional.cross_entropy(net(images), labels, reduction="none")
    for value, image in zip(losses.tolist(), images, strict=True):
        if len(hardest) < 256:
            heapq.heappush(hardest, (value, next(order), image.clone()))  #: kept
        elif value > hardest[0][0]:
            heapq.heapreplace(hardest, (value, next(order), image.clone()))  #: kept
    optimizer.zero_grad()
    losses.mean().backward()
    optimizer.step()
print(hardest[0][0])
