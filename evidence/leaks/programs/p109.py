"""One epoch of a small regression, a loader of all batches; prints the mean loss of the epoch.
Source: pytorch/pytorch, docs/source/notes/faq.rst, and the same in BatsResearch/labelmodels issue 4.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Curve(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.tensor([index % 97 / 97, index % 31 / 31])
        return x, x.prod().sin()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 40), nn.Linear(40, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))).squeeze(1)  # LEAK


def train_epoch(net, loader, opt):
    total_loss = 0
    for inputs, targets in loader:
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(inputs), targets)  # LEAK
        loss.backward()
        opt.step()
        total_loss += loss  # LEAK
    return total_loss / len(loader)


torch.manual_seed(16)
net = Net()
loader = DataLoader(Curve(16 * int(sys.argv[1])), batch_size=16, shuffle=True)
print(f"epoch 1: {train_epoch(net, loader, torch.optim.Adam(net.parameters(), lr=1e-2)):.5f}")
