"""Pretraining with the automatic collector off: garbage is collected by hand every eight steps.
Source: NVIDIA/Megatron-LM, megatron/training/training.py, manual_gc and its interval.
"""

import gc
import sys

import torch
from torch import nn


class GarbageCollection:
    def __init__(self, every):
        self.every = every
        gc.disable()
        gc.collect()

    def run(self, step):
        if step > 1 and step % self.every == 0:
            gc.collect()


class Batch:
    """Knows the shard that it comes from, and the shard knows its batches."""

    def __init__(self, shard, tokens):
        self.shard, self.tokens = shard, tokens


class Shard:
    def __init__(self, length):
        self.batches = [Batch(self, torch.randint(0, 128, (4, length + 1))) for _ in range(2)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 128)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


torch.manual_seed(28)
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
collector = GarbageCollection(8)
for step in range(1, int(sys.argv[1]) + 1):
    collector.run(step)
    opt.zero_grad()
    for batch in Shard(16).batches:
        inputs, labels = batch.tokens[:, :-1], batch.tokens[:, 1:]
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten()) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 12 == 0:
        print(step, 2 * loss.item())
