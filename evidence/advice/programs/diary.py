"""The next word of a diary: an LSTM over a large vocabulary, with a validation behind each few steps."""

import torch
from torch import nn

WORDS = 20000


class Recall(nn.Module):
    def __init__(self, size=256):
        super().__init__()
        self.words = nn.Embedding(WORDS, size)
        self.lstm = nn.LSTM(size, size, num_layers=2, batch_first=True)
        self.guess = nn.Linear(size, WORDS)

    def forward(self, ids):
        states, _ = self.lstm(self.words(ids))
        return self.guess(states)


def pages(count, rows, length=65):
    return [torch.randint(0, WORDS, (rows, length)) for _ in range(count)]


recall = Recall().cuda()
adam = torch.optim.Adam(recall.parameters(), lr=2e-3, fused=True)
fair = nn.CrossEntropyLoss()
known, unseen = pages(6, 12), pages(2, 48)
for number, page in enumerate(known):
    page = page.cuda()
    adam.zero_grad()
    guesses = recall(page[:, :-1])
    loss = fair(guesses.flatten(0, 1), page[:, 1:].flatten())
    loss.backward()
    adam.step()
    if number % 3 == 2:
        recall.eval()
        with torch.no_grad():
            total = 0.0
            for page in unseen:
                page = page.cuda()
                total += fair(recall(page[:, :-1]).flatten(0, 1), page[:, 1:].flatten()).item()
        recall.train()
        print(number, total / len(unseen))
