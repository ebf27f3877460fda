"""A small convolutional network, plain SGD: there is no optimizer state."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(64 * 8 * 8, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


net = Net()
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(12):
    images = torch.rand(batch, 3, 32, 32)  #: input
    labels = torch.randint(0, 10, (batch,))  #: input
    loss = nn.functional.cross_entropy(net(images), labels)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
print(loss.item())
