"""A widening network: half-way through, a layer is added and the optimizer is told."""

import sys

import torch
from torch import nn

torch.manual_seed(34)
steps = int(sys.argv[1])
layers = nn.ModuleList([nn.Linear(40, 40)])
opt = torch.optim.Adam(layers.parameters())
losses = torch.zeros(steps)
ring = [torch.empty(32, 40), torch.empty(32, 40)]
for step in range(steps):
    if step == steps // 2:
        layers.append(nn.Linear(40, 40))
        opt.add_param_group({"params": list(layers[-1].parameters())})
    x = ring[step % 2].normal_()
    h = x
    for layer in layers:
        h = h + layer(h).relu()
    loss = (h - x.cumsum(dim=1)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses[step] = loss.detach()
print(losses[0].item(), losses[-1].item())
