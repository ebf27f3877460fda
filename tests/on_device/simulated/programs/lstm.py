"""Two LSTM layers (cuDNN) that predict the next token, their state carried from chunk to chunk, Adagrad."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.on_device.simulated.programs import Check


class Model(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None) -> tuple[torch.Tensor, tuple]:
        y, state = self.lstm(self.embed(x), state)
        return self.head(y), state


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = Model(2000, 320).cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    check("model")
    state = None
    for chunk in range(4):
        x = torch.randint(2000, (8, 40)).cuda()
        logits, state = model(x, state)
        state = tuple(part.detach() for part in state)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 2000), x[:, 1:].reshape(-1))
        check(f"chunk {chunk}, forward done")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del logits, loss
        check(f"chunk {chunk} done", quiet=True, held=1)  # cuDNN's dropout state
