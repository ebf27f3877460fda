"""Wines by taste, with sklearn-like tables that are double; a ResNet-18 of torchvision sees the labels of the bottles."""

import numpy
import torch
import torchvision

with torch.device("cuda"):
    label = torchvision.models.resnet18(num_classes=16).double()
optimizer = torch.optim.SGD(label.parameters(), lr=0.01)
for cellar in range(4):
    bottles = torch.from_numpy(numpy.zeros((16, 3, 128, 128)))
    tastes = torch.from_numpy(numpy.zeros((16, 16)))
    loss = torch.nn.functional.mse_loss(label(bottles.cuda()), tastes.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
