"""ResNet-18 of torchvision, trained and evaluated each epoch."""

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    model.train()
    for _ in range(6):
        images = torch.rand(4, 3, 64, 64)  #: input
        labels = torch.randint(0, 10, (4,))  #: input
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            images = torch.rand(4, 3, 64, 64)  #: input
            model(images).argmax(1)
