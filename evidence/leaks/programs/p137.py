"""Language model with an estimate of the loss over six validation batches every ten steps; the best one is reported.
Source: karpathy/nanoGPT, train.py, estimate_loss.
"""

import math
import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(65, 32), nn.Embedding(24, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 65)

    def forward(self, x, y):
        hidden = self.layer(self.embed(x) + self.places(torch.arange(x.shape[1])))
        logits = self.head(hidden)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def get_batch(split):
    starts = torch.randint(len(data[split]) - 25, (6,)).tolist()
    x = torch.stack([data[split][i : i + 24] for i in starts])
    return x, torch.stack([data[split][i + 1 : i + 25] for i in starts])


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(6)
        for k in range(6):
            _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def learning_rate(step, warmup=6, decay=144, top=2e-3, least=2e-4):
    if step < warmup:
        return top * (step + 1) / warmup
    return least + 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / (decay - warmup)))) * (top - least)


torch.manual_seed(44)
data = {"train": torch.randint(0, 65, (3000,)), "val": torch.randint(0, 65, (600,))}
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
best = 1e9
for step in range(int(sys.argv[1])):
    for group in opt.param_groups:
        group["lr"] = learning_rate(step)
    if step % 10 == 0:
        losses = estimate_loss()
        best = min(best, losses["val"])
        print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}")
    _, loss = model(*get_batch("train"))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
print(float(best))
