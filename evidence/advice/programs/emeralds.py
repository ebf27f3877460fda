"""Emeralds turned in the light: two looks at one stone should agree, and a jeweller's drawer shows whether they do."""
import copy
import math
import sys

import timm
import torch
import torch.nn.functional as F

N, SIDE, ROWS, QUEUE, WIDTH, ORIGINS = 1536, 96, 64, 4096, 128, 9

stones = torch.randint(0, 256, (N, 3, SIDE, SIDE), dtype=torch.uint8)
origins = torch.randint(0, ORIGINS, (N,)).cuda()

raw = stones.cuda()
light = raw.float() / 255
mean = light.mean(dim=(0, 2, 3), keepdim=True)
std = light.std(dim=(0, 2, 3), keepdim=True)
data = (light - mean) / std


def turn(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    dy, dx = torch.randint(-8, 9, (2,)).tolist()
    x = torch.roll(x, (dy, dx), dims=(2, 3))
    return x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, device=x.device))


def make():
    return timm.create_model("resnet34", pretrained=False, num_classes=WIDTH).cuda()


query = make()
key = copy.deepcopy(query)
for p in key.parameters():
    p.requires_grad = False
queue = F.normalize(torch.randn(QUEUE, WIDTH, device="cuda"), dim=1)
optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)


def contrast(q, k, heat=0.2):
    alike = (q * k).sum(dim=1, keepdim=True)
    logits = torch.cat([alike, q @ queue.T], dim=1) / heat
    return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device="cuda"))


def neighbours(near=20):
    query.eval()
    with torch.no_grad():
        bank = torch.cat([F.normalize(query(x), dim=1) for x in data.split(256)])
        how, which = (bank @ bank.T).topk(near, dim=1)
        votes = torch.gather(origins.repeat(N, 1), 1, which)
        poll = (F.one_hot(votes, ORIGINS) * (how / 0.1).exp()[..., None]).sum(dim=1)
    query.train()
    return (poll.argmax(dim=1) == origins).float().mean().item()


for epoch in range(2):
    order = torch.randperm(N).cuda()
    for step, some in enumerate(order.split(ROWS)[:4]):
        x = data[some]
        with torch.no_grad():
            for a, b in zip(key.parameters(), query.parameters()):
                a.lerp_(b, 0.01)
            k = F.normalize(key(turn(x)), dim=1)
        q = F.normalize(query(turn(x)), dim=1)
        loss = contrast(q, k)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue = torch.cat([k, queue])[:QUEUE]
    if not math.isnan(loss.item()):
        print(epoch, loss.item(), file=sys.stderr)
    print(epoch, neighbours())
