"""A residual network in channels-last format, SGD with momentum; convolutions by cuDNN."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.on_device.simulated.programs import Check


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.short = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def main(check: Check) -> None:
    torch.manual_seed(0)
    stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        *[Residual(*stage) for stage in stages], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100),
    )  # fmt: skip
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    check("model")
    for step in range(3):
        x = torch.randn(8, 3, 96, 96).cuda().to(memory_format=torch.channels_last)
        y = torch.randint(100, (8,)).cuda()
        loss = F.cross_entropy(model(x), y)
        check(f"step {step}, forward done")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        check(f"step {step} done", quiet=True)
    model.eval()
    with torch.no_grad():
        scores = model(torch.randn(32, 3, 96, 96, device="cuda"))
    check("evaluated", quiet=True)
    assert scores.shape == (32, 100)
