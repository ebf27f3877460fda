"""Clusters points: nothing is learned by gradients. Distances of all points to all centers are the peak."""

import torch

torch.manual_seed(0)
points = torch.randn(20_000, 32)  #: input
centers = points[torch.randperm(len(points))[:64]]  #: kept
for iteration in range(25):
    distances = torch.cdist(points, centers)
    nearest = distances.argmin(1)
    sums = torch.zeros(64, 32).index_add_(0, nearest, points)
    counts = torch.bincount(nearest, minlength=64).clamp(min=1)
    centers = sums / counts[:, None]  #: kept
print(distances.min(1).values.mean())
