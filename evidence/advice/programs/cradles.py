"""Cradles rock to a tune; a small network hums it on, a few bars at a time."""
import torch
import torch.nn.functional as F
from torch import nn

NOTES, BARS, VOICES = 96, 64, 256


class Hum(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.notes = nn.Embedding(NOTES, width)
        self.rock = nn.GRUCell(width, width)
        self.sing = nn.Linear(width, NOTES)

    def forward(self, tune, state):
        sung = []
        for note in tune.unbind(1):
            state = self.rock(self.notes(note), state)
            sung.append(self.sing(state))
        return torch.stack(sung, dim=1), state


hum = Hum().cuda()
optimizer = torch.optim.RMSprop(hum.parameters(), lr=1e-3)
tune = torch.randint(0, NOTES, (VOICES, 6 * BARS + 1)).cuda()
state = torch.zeros(VOICES, 512, device="cuda")
for start in range(0, 6 * BARS, BARS):
    bars, after = tune[:, start : start + BARS], tune[:, start + 1 : start + BARS + 1]
    sung, state = hum(bars, state.detach())
    loss = F.cross_entropy(sung.flatten(0, 1), after.flatten())
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    nn.utils.clip_grad_norm_(hum.parameters(), 1.0)
    optimizer.step()
print(loss.item())
