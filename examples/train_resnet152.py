"""ResNet-152 of torchvision on random pictures of 224 by 224. For docs/capacity.md."""

import argparse

import torch
import torch.nn.functional as F
from torchvision.models import resnet152

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--amp", action="store_true", help="mixed precision, channels last")
options = parser.parse_args()
model = resnet152().cuda().to(memory_format=torch.channels_last if options.amp else torch.contiguous_format)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(5):
    pictures = torch.randn(options.batch_size, 3, 224, 224, device="cuda")
    classes = torch.zeros(options.batch_size, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=options.amp):
        loss = F.cross_entropy(model(pictures), classes)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
