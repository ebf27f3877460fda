"""Scanned pages, read by a Wide ResNet of torchvision; how sure it is of each goes into a list."""

import torch
import torchvision

reader = torchvision.models.wide_resnet50_2(num_classes=26).cuda().eval()
sure = []
for page in range(4):
    scan = torch.rand(8, 3, 192, 192).cuda()
    letters = reader(scan).softmax(dim=1)
    sure.append(letters.max().item())
print(sum(sure) / len(sure))
