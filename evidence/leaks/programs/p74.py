"""Two heads on one text encoder; a logger writes down the loss of each head for the curves."""

import collections
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Logger:
    def __init__(self):
        self.scalars = collections.defaultdict(list)

    def log(self, **values):
        for name, value in values.items():
            self.scalars[name].append(value)  # LEAK

    def summary(self):
        return {name: sum(float(v) for v in values) / len(values) for name, values in self.scalars.items()}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(500, 48)
        self.mood = nn.Linear(48, 3)
        self.topic = nn.Linear(48, 12)

    def forward(self, tokens):
        h = torch.tanh(self.words(tokens))  # LEAK
        return self.mood(h), self.topic(h)  # LEAK


torch.manual_seed(62)
model, logger = MultiTask(), Logger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(int(sys.argv[1])):
    tokens = torch.randint(0, 500, (32, 20))
    mood, topic = model(tokens)
    mood_loss = F.cross_entropy(mood, tokens[:, 0] % 3)  # LEAK
    topic_loss = F.cross_entropy(topic, tokens[:, 1] % 12)  # LEAK
    total = mood_loss + 0.5 * topic_loss  # LEAK
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    logger.log(mood=mood_loss, topic=topic_loss, total=total)
print(logger.summary())
