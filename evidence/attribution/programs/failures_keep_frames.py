"""Steps whose loss is not finite are skipped; the exceptions in the log keep their frames, and these all tensors."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 256))
optimizer = torch.optim.Adam(model.parameters())


def train_on(x):
    rebuilt = model(x)
    loss = nn.functional.mse_loss(rebuilt, x)
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


failures = []
for step in range(120):
    x = torch.randn(64, 256)  #: input
    if step % 3 == 2:
        x[0, 0] = float("inf")
    try:
        train_on(x)
    except FloatingPointError as error:
        failures.append(error)
print(len(failures))
