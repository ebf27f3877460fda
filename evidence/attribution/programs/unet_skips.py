"""A U-Net whose skip connections stay alive until the way up."""

import torch
from torch import nn

torch.manual_seed(0)


def double(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = double(1, 16), double(16, 32), double(32, 64)
        self.up2, self.up1 = double(96, 32), double(48, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        c = self.middle(nn.functional.max_pool2d(b, 2))
        b = self.up2(torch.cat([nn.functional.interpolate(c, scale_factor=2), b], 1))
        a = self.up1(torch.cat([nn.functional.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


net = UNet()
optimizer = torch.optim.Adam(net.parameters())
for step in range(5):
    image = torch.rand(2, 1, 96, 96)  #: input
    mask = (image[:, 0] > 0.5).long()  #: input
    loss = nn.functional.cross_entropy(net(image), mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
