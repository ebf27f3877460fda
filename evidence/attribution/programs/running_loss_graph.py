"""The mean loss is summed with its graph; validation runs between the epochs."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
epoch_losses = 0
for epoch in range(5):
    model.train()
    for _ in range(20):
        x, y = torch.randn(128, 64), torch.randint(0, 8, (128,))  #: input
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_losses += loss
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            x, y = torch.randn(128, 64), torch.randint(0, 8, (128,))  #: input
            nn.functional.cross_entropy(model(x), y).item()
print(float(epoch_losses) / 100)
