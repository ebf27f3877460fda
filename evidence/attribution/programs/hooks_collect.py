"""Forward hooks collect activations for a plot."""

import torch
from torch import nn

torch.manual_seed(0)
activations = {}


def watch(name):
    def hook(module, inputs, output):
        activations.setdefault(name, []).append(output.detach().mean(0))  #: kept

    return hook


model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 4))
for name, module in model.named_modules():
    if isinstance(module, nn.Linear):
        module.register_forward_hook(watch(name))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x, y = torch.randn(32, 256), torch.randint(0, 4, (32,))  #: input
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
