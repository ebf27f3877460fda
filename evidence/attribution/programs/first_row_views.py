"""One row of each batch is kept for a gallery: a view, which keeps the whole batch."""

import torch
from torch import nn

torch.manual_seed(0)
autoencoder = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 1024))
optimizer = torch.optim.Adam(autoencoder.parameters())
gallery = []
for step in range(40):
    batch = torch.rand(64, 1024)  #: kept
    loss = nn.functional.mse_loss(autoencoder(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gallery.append(batch[0])
