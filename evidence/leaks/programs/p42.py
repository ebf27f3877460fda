"""Trains in the main thread on batches that a background thread prepares."""

import queue
import sys
import threading

import torch
from torch import nn


class Prefetcher:
    def __init__(self, batches, depth=4):
        self.batches = batches
        self.queue = queue.Queue(depth)
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self):
        generator = torch.Generator().manual_seed(25)
        for _ in range(self.batches):
            x = torch.randn(32, 50, generator=generator)
            self.queue.put((x, x.sum(dim=1, keepdim=True)))
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:
            yield batch


torch.manual_seed(25)
model = nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for x, y in Prefetcher(int(sys.argv[1])):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
