"""Contrastive learning with a momentum encoder and a queue of 2,048 keys, which fills up."""

import copy

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
size, dim = 2048, 512
online = torchvision.models.shufflenet_v2_x0_5(num_classes=dim)
momentum = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.SGD(online.parameters(), lr=0.03, momentum=0.9)
queue = torch.empty(0, dim)
for step in range(60):
    images = torch.rand(64, 3, 32, 32)  #: input
    query = nn.functional.normalize(online(images), dim=1)
    with torch.no_grad():
        for slow, fast in zip(momentum.parameters(), online.parameters(), strict=True):
            slow.mul_(0.99).add_(fast, alpha=0.01)
        keys = nn.functional.normalize(momentum(images.flip(3)), dim=1)
    positive = (query * keys).sum(1, keepdim=True)
    logits = torch.cat([positive, query @ queue.T], dim=1) / 0.2
    loss = nn.functional.cross_entropy(logits, torch.zeros(64, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue = torch.cat([keys, queue])[:size]  #: kept
