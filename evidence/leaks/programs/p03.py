"""Regression with a data loader; prints the average loss of the whole run."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def main(steps):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(256, 20), torch.randn(256, 1))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    total = 0
    done = 0
    while done < steps:
        for x, y in loader:
            opt.zero_grad()
            loss = F.mse_loss(net(x), y)  # LEAK
            loss.backward()
            opt.step()
            total = total + loss  # LEAK
            done += 1
            if done == steps:
                break
    print(f"average loss {float(total) / done:.4f}")


main(int(sys.argv[1]))
