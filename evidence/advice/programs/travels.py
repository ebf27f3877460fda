"""Travels of any length: an encoder of PyTorch reads each as long as it is, shorter and longer by turns."""

import random

import torch
from torch import nn

random.seed(3)
with torch.device("cuda"):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 4)
optimizer = torch.optim.Adam(encoder.parameters())
for tour in range(24):
    stops = torch.rand(8, random.randint(20, 700), 256, device="cuda")
    loss = encoder(stops).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
