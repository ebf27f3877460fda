"""Wide rows of numbers through wide layers: few samples, many weights."""

import torch
import torch.nn as nn

model = nn.Sequential(
    nn.Linear(1024, 6144),
    nn.ReLU(),
    nn.Linear(6144, 6144),
    nn.ReLU(),
    nn.Linear(6144, 1),
)
model.to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()


def fit(rows, answers):
    optimizer.zero_grad()
    guess = model(rows)
    loss = criterion(guess, answers)
    loss.backward()
    optimizer.step()
    return loss.item()


for number in range(6):
    print(number, fit(torch.randn(64, 1024, device="cuda"), torch.randn(64, 1, device="cuda")))
