"""Detection with targets as small trees of boxes; a report over all classes is put together at the end.
Source: the report of cyclic garbage in training loops, pytorch/pytorch issue 95462.
"""

import json
import sys

import torch
from torch import nn


class Box:
    def __init__(self, scene, corners):
        self.scene = scene
        self.corners = corners
        self.neighbours = []


class Scene:
    def __init__(self, count):
        self.image = torch.rand(3, 16, 16)
        self.boxes = [Box(self, torch.rand(4)) for _ in range(count)]
        for box in self.boxes:
            box.neighbours = [other for other in self.boxes if other is not box]

    def target(self):
        return torch.stack([box.corners for box in self.boxes]).mean(dim=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8, 4)

    def forward(self, images):
        return self.head(self.conv(images).relu().mean(dim=(2, 3))).sigmoid()


def report(net, errors):
    rows = []
    for number, error in enumerate(errors):
        rows.append(
            {"scene": number, "error": error, "bins": [{"low": i / 10, "high": (i + 1) / 10} for i in range(10)]}
        )
    weights = {name: p.abs().mean().item() for name, p in net.named_parameters()}
    return json.dumps({"rows": rows, "weights": weights})


torch.manual_seed(26)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
errors = []
for _ in range(int(sys.argv[1])):
    scenes = [Scene(5) for _ in range(4)]
    boxes = net(torch.stack([scene.image for scene in scenes]))
    loss = nn.functional.smooth_l1_loss(boxes, torch.stack([scene.target() for scene in scenes]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    errors.append(loss.item())
print(len(report(net, errors)))
