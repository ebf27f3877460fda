"""A trainer with a number of iterations instead of epochs draws from an endless sampler; predictions go to a histogram.
Source: karpathy/minGPT, mingpt/trainer.py: sampling with replacement, max_iters and callbacks.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Sums(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        digits = torch.tensor([index // 100, index // 10 % 10, index % 10])
        return digits, digits.sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.head = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 28))

    def forward(self, digits, targets):
        logits = self.head(self.embed(digits).flatten(1))
        return logits, nn.functional.cross_entropy(logits, targets)


class Trainer:
    def __init__(self, model, data, max_iters):
        self.model, self.data, self.max_iters = model, data, max_iters
        self.predicted = []

    def run(self):
        opt = torch.optim.AdamW(self.model.parameters(), lr=5e-4, betas=(0.9, 0.95))
        sampler = RandomSampler(self.data, replacement=True, num_samples=int(1e10))
        batches = iter(DataLoader(self.data, sampler=sampler, batch_size=24))
        self.model.train()
        for self.iteration in range(self.max_iters):
            digits, targets = next(batches)
            logits, self.loss = self.model(digits, targets)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            opt.step()
            self.predicted.append(logits.detach().softmax(dim=1))  # GROWS


torch.manual_seed(19)
trainer = Trainer(Model(), Sums(), int(sys.argv[1]))
trainer.run()
print(trainer.loss.item(), torch.cat(trainer.predicted).histc(8, 0, 1).tolist())
