"""Owls told apart by their calls: embeddings close for one owl, far for another; the hardest of each batch count."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Ear(nn.Module):
    def __init__(self, bands=128, width=512, size=192):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(bands, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.out = nn.Linear(width, size)

    def forward(self, calls):
        return nn.functional.normalize(self.out(self.layers(calls)), dim=1)


def distances(a, b):
    apart = a.unsqueeze(1) - b.unsqueeze(0)
    return (apart.pow(2).sum(dim=2) + 1e-8).sqrt()


def hardest(embedded, owl, margin=0.2):
    away = distances(embedded, embedded)
    same = owl.unsqueeze(1) == owl.unsqueeze(0)
    furthest = away.masked_fill(~same, 0.0).amax(dim=1)
    nearest = away.masked_fill(same, 1e4).amin(dim=1)
    return torch.relu(furthest - nearest + margin).mean()


def main():
    owls = torch.arange(2048) % 64
    calls = torch.rand(2048, 128)
    loader = DataLoader(TensorDataset(calls, owls), batch_size=384, shuffle=True, drop_last=True)
    ear = Ear().cuda()
    optimizer = torch.optim.Adam(ear.parameters(), lr=1e-3)
    for epoch in range(1):
        for calls, owls in loader:
            loss = hardest(ear(calls.cuda()), owls.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
