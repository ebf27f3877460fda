"""Paints a picture in the style of another: the picture itself is what LBFGS changes, twenty evaluations at a time.
Source: pytorch/tutorials, advanced_source/neural_style_tutorial.py.
"""

import sys

import torch
from torch import nn


def gram(features):
    batch, channels, height, width = features.shape
    flat = features.view(batch * channels, height * width)
    return flat @ flat.t() / flat.numel()


class Content(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = nn.functional.mse_loss(x, self.target)
        return x


class Style(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram(target).detach()

    def forward(self, x):
        self.loss = nn.functional.mse_loss(gram(x), self.target)
        return x


torch.manual_seed(2)
content_image, style_image = torch.rand(1, 3, 24, 24), torch.rand(1, 3, 24, 24)
first, second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
style = Style(first(style_image))
content = Content(second(first(content_image).relu()))
net = nn.Sequential(first, style, nn.ReLU(), second, content).requires_grad_(False)
image = content_image.clone().requires_grad_(True)
opt = torch.optim.LBFGS([image], history_size=5, tolerance_grad=0, tolerance_change=0)
run = [0]
while run[0] < int(sys.argv[1]):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        opt.zero_grad()
        net(image)
        loss = 1000 * style.loss + content.loss
        loss.backward()
        run[0] += 1
        if run[0] % 12 == 0:
            print(f"run {run[0]}: style {style.loss.item():.6f} content {content.loss.item():.6f}")
        return loss

    opt.step(closure)
