"""Stamps by country: all of them at hand from the start, by SqueezeNet of torchvision."""

import torch
import torchvision

stamps = torch.rand(1200, 3, 128, 128).cuda()
lands = torch.randint(0, 50, (1200,)).cuda()
net = torchvision.models.squeezenet1_1(num_classes=50).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for start in range(0, 160, 32):
    guess = net(stamps[start : start + 32])
    loss = torch.nn.functional.cross_entropy(guess, lands[start : start + 32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
