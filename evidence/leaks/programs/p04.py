"""Regression with a data loader; prints the average loss of each epoch."""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def main(steps):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(192, 20), torch.randn(192, 1))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(max(1, steps // len(loader))):
        total = 0
        outputs = []
        for x, y in loader:
            opt.zero_grad()
            out = net(x)
            loss = F.mse_loss(out, y)
            loss.backward()
            opt.step()
            total = total + loss
            outputs.append(out)
        print(f"epoch {epoch}: loss {float(total) / len(loader):.4f}, spread {torch.cat(outputs).std():.4f}")


main(int(sys.argv[1]))
