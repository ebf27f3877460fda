"""Per-image losses of a segmentation network are kept for hard-example mining, with their graph."""

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hardest = []
for step in range(12):
    x = torch.rand(2, 3, 64, 64)  #: input
    y = torch.randint(0, 4, (2, 64, 64))  #: input
    out = model(x)["out"]
    pixel = nn.functional.cross_entropy(out, y, reduction="none")
    loss = pixel.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hardest.append(pixel.flatten(1).mean(1))
