"""torchvision's ResNet-18 on the GPU, channels last."""

import torch
import torchvision
from torch import nn

torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=100).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for step in range(6):
    x = torch.rand(32, 3, 128, 128, device="cuda").to(memory_format=torch.channels_last)  #: input
    y = torch.randint(0, 100, (32,), device="cuda")  #: input
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
