"""A perceptron that goes back to where it was, with its optimizer, each time that a round was a failure."""

import copy

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

model = nn.Sequential(
    nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 8)
).to(DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def step():
    x = torch.randn(1024, 512, device=DEVICE)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


step()
for round in range(4):
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for _ in range(2):
        loss = step()
    if round == 2:
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
    print(round, loss.item())
