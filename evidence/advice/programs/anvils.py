"""Anvils in photographs of forges: a DeepLab of torchvision whose trunk stays as it is; its head learns."""

import torch
from torch import nn
from torchvision.models.segmentation import deeplabv3_resnet50


def net():
    found = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=4)
    for weight in found.backbone.parameters():
        weight.requires_grad = False
    found.backbone.eval()
    return found.cuda()


def features(model, pictures):
    return model.backbone(pictures)["out"]


def main():
    model = net()
    optimizer = torch.optim.Adam(model.classifier.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step in range(4):
        pictures = torch.rand(6, 3, 224, 224, device="cuda")
        outlines = torch.randint(0, 4, (6, 28, 28), device="cuda")
        seen = features(model, pictures)
        scores = model.classifier(seen)
        loss = criterion(scores, outlines)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
