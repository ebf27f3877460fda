"""A network is pruned after a quarter of the training and fine-tuned with its masks."""

import sys

import torch
from torch import nn
from torch.nn.utils import prune

torch.manual_seed(77)
steps = int(sys.argv[1])
model = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 8))
linears = [m for m in model if isinstance(m, nn.Linear)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sparsity = []
for step in range(steps):
    if step == steps // 4:
        for layer in linears:
            prune.l1_unstructured(layer, "weight", amount=0.6)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    x = torch.randn(32, 32)
    loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    zeros = sum((layer.weight == 0).sum().item() for layer in linears)
    sparsity.append(zeros / sum(layer.weight.numel() for layer in linears))
for layer in linears:
    prune.remove(layer, "weight")
print(f"sparsity {sparsity[0]:.2f} -> {sparsity[-1]:.2f}, loss {loss.item():.3f}")
