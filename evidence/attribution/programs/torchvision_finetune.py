"""Only the head of a frozen MobileNet is trained."""

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
model = torchvision.models.mobilenet_v3_small(num_classes=1000)
for p in model.parameters():
    p.requires_grad = False
model.classifier[3] = nn.Linear(1024, 5)
optimizer = torch.optim.Adam(model.classifier[3].parameters())
model.train()
for step in range(10):
    x = torch.rand(16, 3, 96, 96)  #: input
    y = torch.randint(0, 5, (16,))  #: input
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
