"""Knots in ropes: a deep encoder of PyTorch on a few short series; marks of a test are looked at together."""

import torch
from torch import nn

with torch.device("cuda"):
    layers = nn.ModuleList(nn.TransformerEncoderLayer(320, 5, 1280, batch_first=True) for _ in range(12))
    knot = nn.Linear(320, 8)
    corner = torch.rand(1, 320)
rule = torch.optim.RAdam([*layers.parameters(), *knot.parameters()], lr=1e-3)


def read(ropes):
    x = ropes + corner.repeat(len(ropes), 1).unsqueeze(1)
    for layer in layers:
        x = layer(x)
    return knot(x.mean(1))


for number in range(4):
    ropes = torch.rand(4, 24, 320, device="cuda")
    loss = read(ropes).logsumexp(1).mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
    marks = []
    with torch.no_grad():
        for _ in range(5):
            marks.append(read(torch.rand(4, 24, 320, device="cuda")))
    print(torch.cat(marks).argmax(1).float().mean().item())
