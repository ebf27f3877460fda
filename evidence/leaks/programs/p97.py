"""Twelve small batches to an update, as on a small machine; the mean loss of each update is printed.
Source: huggingface/accelerate, examples/by_feature/gradient_accumulation.py.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, count):
        self.count = count
        self.tokens = torch.randint(0, 50, (64, 10))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = self.tokens[index % 64]
        return tokens, tokens.sum() % 2


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, tokens):
        _, hidden = self.rnn(self.embed(tokens))
        return self.head(hidden[-1])


torch.manual_seed(4)
batches, accumulation = int(sys.argv[1]), 12
model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.LinearLR(opt, total_iters=10)
running = torch.zeros(())
model.train()
for step, (tokens, labels) in enumerate(DataLoader(Pairs(8 * batches), batch_size=8, shuffle=True), 1):
    loss = nn.functional.cross_entropy(model(tokens), labels) / accumulation
    loss.backward()
    running += loss.detach()
    if step % accumulation == 0 or step == batches:
        opt.step()
        schedule.step()
        opt.zero_grad()
        print(f"step {step}: loss {running.item():.4f}")
        running.zero_()
