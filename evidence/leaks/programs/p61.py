"""Describes a folder of pictures by a convolutional net, a batch at a time, and keeps the twenty brightest."""
# STEPS 48

import heapq
import itertools
import sys

import torch
from torch import nn


def layer(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))


class Describe(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(layer(3, 24), layer(24, 48), layer(48, 96))

    def forward(self, images):
        return self.layers(images).mean(dim=(2, 3))


def pictures(batches):
    generator = torch.Generator().manual_seed(41)
    for number in range(batches):
        yield f"batch-{number:04}", torch.rand(8, 3, 112, 112, generator=generator)


torch.manual_seed(41)
net = Describe().eval()
best, order = [], itertools.count()
with torch.inference_mode():
    for name, images in pictures(int(sys.argv[1])):
        for vector in net(images):
            entry = (vector.sum().item(), next(order), name, vector.clone())
            if len(best) < 20:
                heapq.heappush(best, entry)
            else:
                heapq.heappushpop(best, entry)
print([name for _, _, name, _ in sorted(best)])
