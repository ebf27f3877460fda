"""Old hymns, hummed line after line by a choir that remembers the verse before."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    vocab: int = 18000
    width: int = 512
    layers: int = 2
    choir: int = 24
    line: int = 50
    verses: int = 6
    clip: float = 0.25


class Hummer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.encoder = nn.Embedding(s.vocab, s.width)
        self.rnn = nn.LSTM(s.width, s.width, s.layers, dropout=0.3)
        self.decoder = nn.Linear(s.width, s.vocab)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)), hidden


def batchify(stream, columns):
    rows = len(stream) // columns
    return stream[: rows * columns].view(columns, rows).t().contiguous()


def repackage(hidden):
    return tuple(h.detach() for h in hidden)


class Rehearsal:
    def __init__(self, s):
        self.s = s
        self.model = Hummer(s).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.surprises = []

    def epoch(self, source):
        s = self.s
        hidden = tuple(torch.zeros(s.layers, s.choir, s.width, device="cuda") for _ in range(2))
        for i in range(0, s.verses * s.line, s.line):
            data, targets = source[i : i + s.line], source[i + 1 : i + 1 + s.line].reshape(-1)
            self.optimizer.zero_grad(set_to_none=False)
            hidden = repackage(hidden)
            output, hidden = self.model(data, hidden)
            loss = self.criterion(output.view(-1, s.vocab), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), s.clip)
            self.optimizer.step()
            self.surprises.append(loss)
        return torch.stack(self.surprises).mean().exp().item()


if __name__ == "__main__":
    settings = Settings()
    song = torch.randint(0, settings.vocab, (settings.choir * (settings.verses * settings.line + 1),))
    rehearsal = Rehearsal(settings)
    print("perplexity", rehearsal.epoch(batchify(song, settings.choir).cuda()))
