"""Drums by their beat: tables of NumPy, numbers as it makes them, through convolutions over time."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Beats(Dataset):
    def __init__(self, count):
        self.random = np.random.default_rng(0)
        self.kinds = np.arange(count) % 5

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        time = np.linspace(0, 1, 8192)
        beat = np.sin(2 * np.pi * (3 + self.kinds[i]) * time) + self.random.normal(size=8192)
        return beat[None], self.kinds[i]


def net(width=32):
    layers = [nn.Conv1d(1, width, 9, padding=4), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 5))


def main():
    drums = net().double().cuda()
    optimizer = torch.optim.SGD(drums.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for beats, kinds in DataLoader(Beats(128), batch_size=32, shuffle=True):
        beats, kinds = beats.cuda(), kinds.cuda()
        optimizer.zero_grad()
        loss = criterion(drums(beats), kinds)
        loss.backward()
        optimizer.step()
        print(loss.item())


main()
