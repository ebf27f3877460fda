"""An image is optimized so that a frozen network's features look like another image's."""

import torch
from torch import nn

torch.manual_seed(0)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in [(3, 16), (16, 32), (32, 32)]])

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            found.append(x)
        return found


def gram(f):
    f = f.flatten(2)
    return f @ f.mT / f.shape[-1]


network = Features().requires_grad_(False)
style = torch.rand(1, 3, 128, 128)  #: input
wanted = [gram(f) for f in network(style)]
image = nn.Parameter(torch.rand(1, 3, 128, 128))
optimizer = torch.optim.Adam([image], lr=0.02)
for step in range(40):
    optimizer.zero_grad()
    loss = sum((gram(f) - g).square().sum() for f, g in zip(network(image), wanted, strict=True))
    loss.backward()
    optimizer.step()
