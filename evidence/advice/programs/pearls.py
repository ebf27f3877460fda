"""Pearls on a turning plate: one net looks at each of nine views, what it saw is averaged, and three rounds decide."""

import timm
import torch
from torch import nn


class Plate(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = timm.create_model("resnet18", pretrained=False, num_classes=0, global_pool="")
        self.kind = nn.Linear(512, 20)

    def forward(self, views):
        seen = []
        for view in views.unbind(dim=1):
            seen.append(self.eye(view))
        together = torch.stack(seen, dim=1).mean(dim=1)
        return self.kind(together.mean(dim=(2, 3)))


def main():
    plate = Plate().cuda()
    optimizer = torch.optim.SGD(plate.parameters(), lr=0.01, momentum=0.9)
    for step in range(3):
        views = torch.rand(1, 9, 3, 192, 192).cuda()
        kinds = torch.randint(0, 20, (1,)).cuda()
        loss = nn.functional.cross_entropy(plate(views), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
