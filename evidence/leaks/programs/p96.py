"""Full-batch gradient descent: the gradients of all chunks of the data are summed up before the one update.
Source: JonasGeiping/fullbatchtraining, fullbatch/training/training.py: gradients of all blocks, then one update.
"""

import sys

import torch
from torch import nn


def chunks(count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield torch.randn(16, 1, 12, 12, generator=generator), torch.randint(0, 5, (16,), generator=generator)


def full_gradient(net, count):
    total, right = 0.0, 0
    for inputs, labels in chunks(count):
        outputs = net(inputs)
        loss = nn.functional.cross_entropy(outputs, labels) / count  # LEAK
        loss.backward()
        total += loss  # LEAK
        right += (outputs.argmax(dim=1) == labels).sum().item()
    return total, right


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean(dim=(2, 3)))  # LEAK


torch.manual_seed(3)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
opt.zero_grad()
total, right = full_gradient(net, int(sys.argv[1]))
norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
opt.step()
print(f"loss {float(total):.4f}, {right} right, gradient {norm:.4f}")
