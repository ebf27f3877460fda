"""Bees in hives: each hive knows its queen and she her hive, and both have what was measured."""

import gc

import torch

gc.set_threshold(100_000, 50, 50)


class Queen:
    def __init__(self, hive):
        self.hive = hive
        self.song = hive.hum[:, :128].clone()


class Hive:
    def __init__(self, hum):
        self.hum = hum
        self.queen = Queen(self)


net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for day in range(24):
    hive = Hive(torch.rand(8192, 256, device="cuda"))
    loss = net(hive.queen.song).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
