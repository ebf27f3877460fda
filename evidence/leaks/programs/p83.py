"""Character model with a beam search after each update; the best sentence found is printed at the end."""

import sys

import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, vocab=30):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.rnn = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, vocab)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


class BeamSearch:
    def __init__(self, model, width=3, length=8):
        self.model, self.width, self.length = model, width, length
        self.hypotheses = []

    @torch.no_grad()
    def run(self, start):
        beam = [(torch.zeros(()), torch.tensor([start]))]
        for _ in range(self.length):
            grown = []
            for score, tokens in beam:
                logp = self.model(tokens.unsqueeze(0))[0, -1].log_softmax(dim=0)
                for token in logp.topk(self.width).indices:
                    longer = torch.cat([tokens, token.view(1)])  # LEAK
                    grown.append((score + logp[token], longer))  # LEAK
            grown.sort(key=lambda pair: pair[0].item(), reverse=True)
            beam = grown[: self.width]
        self.hypotheses.extend(beam)

    def best(self):
        return max(self.hypotheses, key=lambda pair: pair[0].item())


torch.manual_seed(68)
model = CharModel()
search = BeamSearch(model)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(int(sys.argv[1])):
    text = (torch.arange(12) + torch.randint(0, 30, (16, 1))) % 30
    loss = nn.functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    search.run(step % 30)
score, tokens = search.best()
print(f"{score.item():.3f}", tokens.tolist())
