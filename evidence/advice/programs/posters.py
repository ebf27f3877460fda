"""Posters of all formats through RegNet of torchvision, whatever their size is."""

import random

import torch
import torchvision

random.seed(1)
net = torchvision.models.regnet_y_400mf(num_classes=9).cuda()
rule = torch.optim.SGD(net.parameters(), lr=0.01)
for poster in range(16):
    wide, high = (32 * random.randint(3, 14) for _ in range(2))
    loss = net(torch.rand(4, 3, high, wide, device="cuda")).logsumexp(1).mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
