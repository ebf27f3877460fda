"""One epoch of metric learning with a loader of all batches; progress is printed from running numbers.
Source: pytorch/examples, siamese_network/main.py.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, count):
        self.count = count
        self.images = torch.rand(40, 1, 14, 14)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        first, same = index % 40, index % 2
        second = (first + 10) % 40 if same else (first + 7) % 40
        return self.images[first], self.images[second], torch.tensor(float(same))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(216, 20))
        self.head = nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 1))

    def forward(self, a, b):
        return self.head(torch.cat([self.body(a), self.body(b)], dim=1)).squeeze(1)


torch.manual_seed(51)
model = Siamese()
opt = torch.optim.Adadelta(model.parameters(), lr=1.0)
running, right, seen = 0.0, 0, 0
for batch, (a, b, same) in enumerate(DataLoader(Pairs(8 * int(sys.argv[1])), batch_size=8, shuffle=True)):
    opt.zero_grad()
    scores = model(a, b)
    loss = nn.functional.binary_cross_entropy_with_logits(scores, same)
    loss.backward()
    opt.step()
    running += loss.item()
    right += ((scores > 0) == same.bool()).sum().item()
    seen += len(same)
    if batch % 10 == 0:
        print(f"batch {batch}: loss {running / (batch + 1):.4f}, right {right / seen:.3f}")
