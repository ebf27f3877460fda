"""Large-batch update from many small ones: gradients are summed up by hand and applied when all have been seen.
Source: JonasGeiping/fullbatchtraining, fullbatch/training/training.py, with sums that are kept by hand.
"""

import sys

import torch
from torch import nn


def chunks(count):
    for _ in range(count):
        tokens = torch.randint(0, 90, (8, 12))
        yield tokens[:, :-1], tokens[:, 1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(90, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, 90)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


torch.manual_seed(52)
model = Model()
params = list(model.parameters())
sums = [torch.zeros_like(p) for p in params]
samples, logged = 0, 0.0
for inputs, targets in chunks(int(sys.argv[1])):
    loss = nn.functional.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="sum")
    for total, grad in zip(sums, torch.autograd.grad(loss, params), strict=True):
        total += grad
    samples += targets.numel()
    logged += loss.item()
with torch.no_grad():
    for p, total in zip(params, sums, strict=True):
        p.sub_(total / samples, alpha=0.5)
print(f"loss before {logged / samples:.4f}, gradient {sum(t.norm().item() for t in sums) / samples:.4f}")
