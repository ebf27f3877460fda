"""A module remembers the features of each batch in a dictionary."""

import torch
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(128, 256)
        self.bank = {}

    def forward(self, x, index):
        z = nn.functional.normalize(self.body(x), dim=1)
        self.bank[index] = z.detach().clone()  #: kept
        return z


encoder = Encoder()
optimizer = torch.optim.Adam(encoder.parameters())
for step in range(50):
    x = torch.randn(64, 128)  #: input
    z = encoder(x, step)
    loss = (z @ z.T).logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
