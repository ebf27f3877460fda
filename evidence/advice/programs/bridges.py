"""Cracks in bridges by their vibrations: a list of recordings, each brought where it is needed before the work begins."""

import torch
from torch import nn


def recordings(count):
    return [(torch.rand(64, 4, 4096).to("cuda"), torch.rand(64, 1).to("cuda")) for _ in range(count)]


def listen(net, recordings):
    rule = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    for wave, crack in recordings:
        loss = nn.functional.binary_cross_entropy_with_logits(net(wave).mean(2), crack)
        rule.zero_grad()
        loss.backward()
        rule.step()


with torch.device("cuda"):
    ear = nn.Sequential(nn.Conv1d(4, 16, 64, stride=16), nn.ReLU(), nn.Conv1d(16, 1, 9))
listen(ear, recordings(30))
