"""Images come from a dataset that remembers what it has decoded; many short epochs."""
# STEPS 48

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset):
    def __init__(self, count):
        self.raw = [torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8) for _ in range(count)]
        self.ready = {}

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, index):
        if index not in self.ready:
            self.ready[index] = self.raw[index].float() / 255
        return self.ready[index], index % 4


def main(steps):
    torch.manual_seed(28)
    loader = DataLoader(Decoded(96), batch_size=8, shuffle=True)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4))
    opt = torch.optim.Adam(net.parameters())
    for _ in range(max(1, steps // len(loader))):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())


main(int(sys.argv[1]))
