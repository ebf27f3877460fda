"""Kites in the wind: positions of pixels beside each picture, by a MobileNet of torchvision without learning."""

import torch
import torchvision

with torch.device("cuda"):
    net = torchvision.models.mobilenet_v2(num_classes=3).eval()
    net.features[0][0] = torch.nn.Conv2d(5, 32, 3, stride=2, padding=1)
    line = torch.linspace(-1, 1, 512)
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"))


@torch.inference_mode()
def winds(kites):
    places = grid.unsqueeze(0).repeat(len(kites), 1, 1, 1)
    tilted = places * kites.mean(dim=(1, 2, 3)).view(-1, 1, 1, 1)
    return net(torch.cat([kites, tilted], dim=1))


for flight in range(4):
    print(winds(torch.rand(12, 3, 512, 512, device="cuda")).argmax(1).tolist())
