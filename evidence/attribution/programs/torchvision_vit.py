"""A small vision transformer of torchvision; the size of the batch is the setting."""

import sys

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
model = torchvision.models.VisionTransformer(
    image_size=64, patch_size=8, num_layers=4, num_heads=4, hidden_dim=192, mlp_dim=768, num_classes=20
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
criterion = nn.CrossEntropyLoss()
for step in range(8):
    x = torch.rand(batch, 3, 64, 64)  #: input
    y = torch.randint(0, 20, (batch,))  #: input
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
