"""A perceptron on data in memory: train and validate each epoch, keep the best weights."""

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
width = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
data = torch.randn(1280, 256)  #: input
target = (data.sum(1) > 0).long()  #: input
train = DataLoader(TensorDataset(data[:1024], target[:1024]), batch_size=128, shuffle=True)
valid = DataLoader(TensorDataset(data[1024:], target[1024:]), batch_size=128)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.head(x)


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
best, best_state = 1e9, None
for epoch in range(4):
    net.train()
    for x, y in train:  #: input
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in valid:  #: input
            total += nn.functional.cross_entropy(net(x), y).item()
    if total < best:
        best, best_state = total, copy.deepcopy(net.state_dict())  #: kept
print(best)
