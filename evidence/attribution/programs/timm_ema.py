"""A timm network with ModelEmaV3, validated with the average."""

import timm
import torch
from timm.utils import ModelEmaV3
from torch import nn

torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=10)
ema = ModelEmaV3(model, decay=0.99)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    model.train()
    for _ in range(6):
        x = torch.rand(8, 3, 64, 64)  #: input
        y = torch.randint(0, 10, (8,))  #: input
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    with torch.no_grad():
        for _ in range(4):
            x = torch.rand(8, 3, 64, 64)  #: input
            ema.module(x)
