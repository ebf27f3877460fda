"""Autoencoder; the codes of the last batches are kept to draw them afterwards."""

import sys
from collections import deque

import torch
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 100))

    def forward(self, x):
        code = self.encoder(x)
        return code, self.decoder(code)


def train(steps):
    model = AutoEncoder()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    codes = deque(maxlen=10)
    for _ in range(steps):
        x = torch.rand(64, 100)
        code, restored = model(x)
        loss = (restored - x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        codes.append(code)
    return torch.cat(list(codes))


if __name__ == "__main__":
    torch.manual_seed(4)
    print(train(int(sys.argv[1])).shape)
