"""A word model with an LSTM, truncated backpropagation through time with the hidden state carried over, Adam."""

from collections.abc import Callable

import torch
from torch import nn

WORDS, WIDTH, WINDOW, BATCH = 200, 48, 12, 6


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, x, state):
        x, state = self.lstm(self.embedding(x), state)
        return self.out(x), state


def main(check: Callable[[str], None] = lambda name: None, windows: int = 20) -> float:
    torch.manual_seed(3)
    corpus = torch.randint(WORDS, (BATCH, windows * WINDOW + 1))
    model = Words()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    state = tuple(torch.zeros(2, BATCH, WIDTH) for _ in range(2))
    history = []
    check("model")
    for i in range(windows):
        x = corpus[:, i * WINDOW : (i + 1) * WINDOW]
        y = corpus[:, i * WINDOW + 1 : (i + 1) * WINDOW + 1]
        state = tuple(s.detach() for s in state)
        logits, state = model(x, state)
        check("forward")
        loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), y.reshape(-1))
        check("loss")
        optimizer.zero_grad()
        loss.backward()
        check("backward")
        optimizer.step()
        check("step")
        history.append(loss.detach())
    return torch.stack(history).mean().item()


if __name__ == "__main__":
    print(f"{main():.4f}")
