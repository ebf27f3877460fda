"""A trainer with a number of iterations instead of epochs; callbacks print the progress and sample now and then.
Source: karpathy/minGPT, mingpt/trainer.py and projects/adder/adder.py.
"""

import sys
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Sorting(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, index):
        digits = torch.tensor([int(d) for d in f"{index:04}"])
        return digits, digits.sort().values


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(10, 32), nn.Parameter(torch.zeros(4, 32))
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, digits, targets=None):
        logits = self.head(self.layer(self.embed(digits) + self.places))
        loss = None if targets is None else nn.functional.cross_entropy(logits.transpose(1, 2), targets)
        return logits, loss


class Trainer:
    def __init__(self, model, data, max_iters):
        self.model, self.data, self.max_iters = model, data, max_iters
        self.callbacks = defaultdict(list)

    def run(self):
        opt = torch.optim.AdamW(self.model.parameters(), lr=5e-4)
        sampler = RandomSampler(self.data, replacement=True, num_samples=int(1e10))
        batches = iter(DataLoader(self.data, sampler=sampler, batch_size=16))
        self.iteration = 0
        while self.iteration < self.max_iters:
            digits, targets = next(batches)
            self.model.train()
            _, self.loss = self.model(digits, targets)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            opt.step()
            for callback in self.callbacks["on_batch_end"]:
                callback(self)
            self.iteration += 1


def progress(trainer):
    if trainer.iteration % 10 == 0:
        print(f"iteration {trainer.iteration}: loss {trainer.loss.item():.4f}")
        trainer.model.eval()
        with torch.no_grad():
            logits, _ = trainer.model(torch.tensor([[3, 1, 9, 2]]))
        print(logits.argmax(dim=-1).tolist())


torch.manual_seed(20)
trainer = Trainer(Model(), Sorting(), int(sys.argv[1]))
trainer.callbacks["on_batch_end"].append(progress)
trainer.run()
