"""Augmented images come from a dataset that remembers what it has made; batches are collated by hand."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self, count):
        self.base = torch.rand(count, 3, 8, 8)
        self.made = {}
        self.epoch = 0

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        key = (self.epoch, index)
        if key not in self.made:
            image = self.base[index].clone()  # LEAK
            self.made[key] = image.flip(-1) if (index + self.epoch) % 2 else image  # LEAK
        return self.made[key], index % 4


def main(steps):
    torch.manual_seed(28)
    data = Augmented(64)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
    opt = torch.optim.Adam(net.parameters())
    left = steps
    while left > 0:
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            left -= 1
            if left == 0:
                break
        data.epoch += 1
    print(loss.item())


main(int(sys.argv[1]))
