"""A small U-Net on batches of a DataLoader, with an evaluation behind. --hand NAME makes that change in the code."""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 8


def convolutions(inputs, outputs, inplace):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=inplace),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=inplace),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.down = nn.ModuleList([convolutions(3, 16, inplace), convolutions(16, 32, inplace)])
        self.bottom = convolutions(32, 32, inplace)
        self.up = convolutions(64, 16, inplace)
        self.out = nn.Conv2d(32, 3, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        up = self.up(torch.cat([F.interpolate(bottom, scale_factor=2), second], 1))
        return self.out(torch.cat([F.interpolate(up, scale_factor=2), first], 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hand", default="")
    parser.add_argument("--evaluations", type=int, default=0)
    options = parser.parse_args()
    hand = options.hand
    model = UNet(inplace=hand == "in_place").cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    parts = 2 if hand == "accumulate" else 1
    size = int(hand.partition("=")[2]) if hand.startswith("batch=") else BATCH // parts
    loader = DataLoader(TensorDataset(torch.zeros(64, 3, 64, 64), torch.zeros(64, 3, 64, 64)), batch_size=size)
    for number, (images, wanted) in enumerate(loader):
        loss = F.mse_loss(model(images.cuda()), wanted.cuda())
        if number % parts == 0:
            optimizer.zero_grad()
        (loss / parts).backward()
        if number % parts == parts - 1:
            optimizer.step()
    model.eval()
    total = 0
    with torch.no_grad() if hand == "no_grad" else contextlib.nullcontext():
        for _ in range(options.evaluations):
            total += model(torch.zeros(BATCH, 3, 64, 64, device="cuda")).mean()


main()
