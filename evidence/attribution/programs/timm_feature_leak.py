"""Feature maps of a timm backbone are appended to a list for a later picture."""

import timm
import torch
from torch import nn

torch.manual_seed(0)
backbone = timm.create_model("mobilenetv3_small_050", features_only=True, pretrained=False)
head = nn.Conv2d(288, 3, 1)
optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()])
maps = []
for step in range(16):
    x = torch.rand(8, 3, 64, 64)  #: input
    features = backbone(x)
    loss = head(features[-1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    maps.append(features[0].detach())
