"""Weights of fish by their outlines, kept as NumPy has them; one wide layer after another."""

import numpy
import torch

fish = numpy.random.default_rng(0)
middle = fish.random((1, 512))
net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 2048)).cuda()
shift = torch.from_numpy(middle).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for catch in range(4):
    outline = torch.rand(8192, 512, device="cuda")
    target = torch.from_numpy(fish.random((8192, 2048))).cuda()
    weight = net(outline - shift.float())
    loss = (weight - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
