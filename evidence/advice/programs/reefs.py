"""Where coral is in pictures of a reef: a U-Net written here marks each point, picture by picture."""

import torch
from torch import nn


def twice(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256), kinds=6):
        super().__init__()
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths))
        self.pool = nn.MaxPool2d(2)
        self.middle = twice(widths[-1], 2 * widths[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths))
        self.up = nn.ModuleList(twice(2 * width, width) for width in reversed(widths))
        self.head = nn.Conv2d(widths[0], kinds, 1)

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = self.pool(x)
        x = self.middle(x)
        skips = skips[::-1]
        for number, (grow, layer) in enumerate(zip(self.grow, self.up)):
            x = grow(x)
            x = torch.cat([skips[number], x], dim=1)
            x = layer(x)
        return self.head(x)


net = UNet().cuda().eval()
covered = []
with torch.no_grad():
    for _ in range(4):
        pictures = torch.rand(4, 3, 256, 256).cuda()
        marks = net(pictures).softmax(dim=1)
        covered.append(marks[:, 1:].sum(1).mean().item())
print(covered)
