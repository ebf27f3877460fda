"""Skip-gram word vectors with negative samples; the learning rate of each update is noted for a chart."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.inside = nn.Embedding(words, width)
        self.outside = nn.Embedding(words, width)

    def forward(self, center, context, negative):
        c = self.inside(center)
        good = (c * self.outside(context)).sum(dim=1)
        bad = torch.bmm(self.outside(negative), c.unsqueeze(2)).squeeze(2)
        return -F.logsigmoid(good).mean() - F.logsigmoid(-bad).mean()


class History(dict):
    def add(self, key, value):
        self.setdefault(key, []).append(torch.as_tensor(value, dtype=torch.float64))  # NEGLIGIBLE


torch.manual_seed(74)
steps = int(sys.argv[1])
model = SkipGram(800, 32)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
history = History()
for _ in range(steps):
    center = torch.randint(0, 800, (64,))
    context = (center + torch.randint(1, 5, (64,))) % 800
    loss = model(center, context, torch.randint(0, 800, (64, 6)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.add("lr", optimizer.param_groups[0]["lr"])
    scheduler.step()
chart = torch.stack(history["lr"])
print(f"{chart[0].item():.4f} {chart.mean().item():.4f} {chart[-1].item():.4f}, loss {loss.item():.3f}")
