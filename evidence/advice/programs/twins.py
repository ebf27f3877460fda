"""Twins of pictures: what two views of one share, by a net and a slow copy of it, against many others in a queue."""

import copy

import torch
import torch.nn.functional as F
import torchvision

fast = torchvision.models.resnet18(num_classes=128).cuda()
slow = copy.deepcopy(fast)
optimizer = torch.optim.SGD(fast.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
queue = F.normalize(torch.randn(4096, 128), dim=1).cuda()


def views(count, size):
    for _ in range(count):
        yield torch.rand(size, 3, 128, 128), torch.rand(size, 3, 128, 128)


for first, second in views(4, 24):
    first, second = first.cuda(), second.cuda()
    with torch.no_grad():
        for mine, theirs in zip(slow.parameters(), fast.parameters()):
            mine.mul_(0.999).add_(theirs, alpha=0.001)
    query = F.normalize(fast(first), dim=1)
    key = F.normalize(slow(second), dim=1)
    same = (query * key.detach()).sum(1, keepdim=True)
    scores = torch.cat([same, query @ queue.T], dim=1) / 0.07
    loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue = torch.cat([key.detach(), queue])[:4096]
