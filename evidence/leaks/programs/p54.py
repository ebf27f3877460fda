"""A probe is attached to the running model in every step to see the inputs of its last layer."""

import sys

import torch
from torch import nn

torch.manual_seed(35)
model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.02)


def probe(layer):
    inside = []

    def hook(module, inputs):
        if not inside:
            inside.append(inputs[0].detach())

    layer.register_forward_pre_hook(hook)
    return inside


for step in range(int(sys.argv[1])):
    inside = probe(model[2])
    x, y = torch.randn(20, 16), torch.randint(0, 4, (20,))
    loss = nn.functional.cross_entropy(model(x), y)  # LEAK
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, inside[0].mean().item())
