"""Language model with clipped gradients; the norm of the gradient of each update is kept for the log.
Source: karpathy/nanoGPT, train.py, and the grad_norm that many forks of it log.
"""

import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 40)
        self.rnn = nn.LSTM(40, 40, batch_first=True)
        self.head = nn.Linear(40, 64)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def batch(text, size=8, length=20):
    starts = torch.randint(len(text) - length - 1, (size,)).tolist()
    x = torch.stack([text[i : i + length] for i in starts])
    return x, torch.stack([text[i + 1 : i + length + 1] for i in starts])


torch.manual_seed(36)
text = torch.randint(0, 64, (2000,))
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
norms = []
for _ in range(int(sys.argv[1])):
    x, y = batch(text)
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))  # NEGLIGIBLE
    opt.step()
print(loss.item(), max(norm.item() for norm in norms))
