"""Autoencoder; the codes of all batches are kept to draw them afterwards."""

import sys

import torch
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 100))

    def forward(self, x):
        code = self.encoder(x)  # LEAK
        return code, self.decoder(code)


def train(steps):
    model = AutoEncoder()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    codes = []
    for _ in range(steps):
        x = torch.rand(64, 100)
        code, restored = model(x)
        loss = (restored - x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        codes.append(code.detach())
    return torch.cat(codes)


if __name__ == "__main__":
    torch.manual_seed(4)
    print(train(int(sys.argv[1])).shape)
