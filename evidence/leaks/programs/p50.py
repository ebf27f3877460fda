"""Sentences get longer from stage to stage of the training."""
# STEPS 48

import sys

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True)
        self.tag = nn.Linear(24, 7)

    def forward(self, words):
        return self.tag(self.rnn(self.embed(words))[0])


torch.manual_seed(31)
steps = int(sys.argv[1])
net = Tagger()
opt = torch.optim.Adam(net.parameters())
for step in range(steps):
    length = 6 + 4 * (8 * step // steps)
    words = torch.randint(0, 60, (8, length))
    tags = words % 7
    scores = net(words)
    loss = nn.functional.cross_entropy(scores.reshape(-1, 7), tags.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(length, loss.item())
