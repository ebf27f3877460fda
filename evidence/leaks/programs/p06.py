"""Language model trained by truncated backpropagation through time; the hidden state goes on from chunk to chunk."""

import sys

import torch
from torch import nn

torch.manual_seed(2)


class Net(nn.Module):
    def __init__(self, vocab=50, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens, state):
        hidden, state = self.rnn(self.embed(tokens), state)
        return self.out(hidden), state


net = Net()
opt = torch.optim.Adam(net.parameters())
text = torch.randint(0, 50, (4, 12 * int(sys.argv[1]) + 1))
state = None
for start in range(0, text.shape[1] - 1, 12):
    x, y = text[:, start : start + 12], text[:, start + 1 : start + 13]
    if state is not None:
        state = tuple(s.detach() for s in state)
    logits, state = net(x, state)
    loss = nn.functional.cross_entropy(logits.reshape(-1, 50), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
