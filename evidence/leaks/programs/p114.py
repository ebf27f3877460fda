"""Three epochs of growing length; in the last one, auxiliary losses join in, and their sum is printed at the end.
Source: google/brax pull request 152: a sum of losses that keeps its history, here in one epoch of three.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tones(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.sin(torch.arange(40) * (1 + index % 13) / 10), torch.tensor(index % 13)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, 32), nn.ReLU())
        self.head, self.again = nn.Linear(32, 13), nn.Linear(32, 40)

    def forward(self, x):
        hidden = self.body(x)  # LEAK
        return self.head(hidden), self.again(hidden)  # LEAK


def train(net, opt, batches, last):
    auxiliary = 0.0
    for x, y in DataLoader(Tones(12 * batches), batch_size=12, shuffle=True):
        logits, copy = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        if last:
            rebuilt = nn.functional.mse_loss(copy, x)  # LEAK
            auxiliary = auxiliary + rebuilt  # LEAK
            loss = loss + 0.1 * rebuilt
        opt.zero_grad()
        loss.backward()
        opt.step()
    return auxiliary


torch.manual_seed(21)
steps = int(sys.argv[1])
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch, batches in enumerate((steps // 4, steps // 4, steps // 2)):
    auxiliary = train(net, opt, batches, last=epoch == 2)
    print(f"epoch {epoch}: {float(auxiliary):.4f}")
