"""A memory of ships: the middle of each picture's feature map, and for each new picture the one that is most like it."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def layer(given, made):
    return nn.Sequential(nn.Conv2d(given, made, 3, 2, 1), nn.BatchNorm2d(made), nn.ReLU())


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(layer(3, 64), layer(64, 128), nn.Conv2d(128, 256, 3, padding=1))

    def middle(self, pictures):
        seen = self.body(pictures)
        height, width = (size // 2 for size in seen.shape[-2:])
        return seen[:, :, height - 2 : height + 2, width - 2 : width + 2]


@torch.inference_mode()
def main():
    eye = Eye().to(DEVICE).eval()
    memory = []
    for _ in range(12):
        memory.append(eye.middle(torch.rand(16, 3, 192, 192, device=DEVICE)))
    known = torch.cat([part.flatten(1) for part in memory])
    new = eye.middle(torch.rand(16, 3, 192, 192, device=DEVICE)).flatten(1)
    print(torch.cdist(new, known).argmin(1).shape)


main()
