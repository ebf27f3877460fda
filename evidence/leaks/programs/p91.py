"""Denoising of recordings that are cut into windows lazily; each recording serves its first windows."""

import itertools
import sys

import torch
from torch import nn


def recording(seconds=4, rate=500):
    t = torch.arange(seconds * rate) / rate
    return torch.sin(40 * torch.rand(1) * t) + 0.1 * torch.randn(len(t))  # LEAK


def windows(signal, width=64, hop=32):
    position = 0
    while position + width <= len(signal):
        yield signal[position : position + width]
        position += hop


class Corpus:
    def __init__(self):
        self.streams = []

    def open(self):
        stream = windows(recording())
        self.streams.append(stream)
        return stream

    def batch(self, size=16):
        return torch.stack(list(itertools.islice(self.open(), size)))


torch.manual_seed(86)
corpus = Corpus()
net = nn.Sequential(nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 64))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(int(sys.argv[1])):
    clean = corpus.batch()
    noisy = clean + 0.3 * torch.randn_like(clean)
    loss = nn.functional.l1_loss(net(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
fresh = torch.stack([next(stream) for stream in corpus.streams[-4:]])
with torch.no_grad():
    print("on windows not seen:", nn.functional.l1_loss(net(fresh), fresh).item())
