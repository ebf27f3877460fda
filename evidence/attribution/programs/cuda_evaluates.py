"""Training on the GPU with batches from a pinned loader, and validation."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = torch.randn(1280, 3, 32, 32)
label = torch.randint(0, 10, (1280,))
train = DataLoader(TensorDataset(data[:1024], label[:1024]), batch_size=128)
valid = DataLoader(TensorDataset(data[1024:], label[1024:]), batch_size=128)
net = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)
)
net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    net.train()
    for x, y in train:
        x, y = x.cuda(), y.cuda()  #: input
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for x, y in valid:
            x, y = x.cuda(), y.cuda()  #: input
            nn.functional.cross_entropy(net(x), y)
