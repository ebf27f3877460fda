"""Translation with teacher forcing; the decoder remembers its states for a picture of how they move."""

import sys

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.cell = nn.GRUCell(width, width)
        self.project = nn.Linear(width, vocab)
        self.states = []

    def forward(self, h, targets):
        logits = []
        for t in range(targets.shape[1]):
            logits.append(self.project(h))
            e = self.embed(targets[:, t])  # LEAK
            h = self.cell(e, h)  # LEAK
            self.states.append(h)  # LEAK
        return torch.stack(logits, dim=2)


class Translator(nn.Module):
    def __init__(self, vocab=60, width=32):
        super().__init__()
        self.source = nn.Embedding(vocab, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = Decoder(vocab, width)

    def forward(self, source, target):
        _, h = self.encoder(self.source(source))  # LEAK
        return self.decoder(h[0], target)  # LEAK


torch.manual_seed(70)
net = Translator()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for _ in range(int(sys.argv[1])):
    source = torch.randint(0, 60, (12, 7))
    target = source.flip(1)
    loss = nn.functional.cross_entropy(net(source, target), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 2.0)
    opt.step()
path = torch.stack([s.mean(dim=0) for s in net.decoder.states]).detach()
print(f"loss {loss.item():.3f}, length of the path {path.diff(dim=0).norm(dim=1).sum().item():.2f}")
