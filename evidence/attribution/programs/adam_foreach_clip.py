"""A large table, small batches, AdamW over all parameters at once: the optimizer's own temporaries are the peak."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.EmbeddingBag(30000, 64), nn.Linear(64, 200))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(40):
    words, label = torch.randint(0, 30000, (16, 20)), torch.randint(0, 200, (16,))  #: input
    loss = nn.functional.cross_entropy(model(words), label)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
