"""Comets against stars: a convolutional net learns; behind each epoch the whole sky is looked at, maps of it are compared."""

import torch
from torch import nn


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU())


net = nn.Sequential(block(1, 16), block(16, 16), nn.Conv2d(16, 4, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def sky(count, size):
    for _ in range(count):
        yield torch.rand(size, 1, 128, 128)


def look():
    maps, skies = [], []
    net.eval()
    with torch.no_grad():
        for picture in sky(60, 8):
            picture = picture.cuda()
            maps.append(net(picture))
            skies.append(picture)
    net.train()
    maps, skies = torch.cat(maps), torch.cat(skies)
    return (maps.mean(1, keepdim=True) - skies).abs().mean().item()


for epoch in range(2):
    for picture in sky(4, 8):
        picture = picture.cuda()
        error = (net(picture).mean(1, keepdim=True) - picture).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    print(epoch, look())
