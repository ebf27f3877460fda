"""Makes photographs ready for a catalogue: brightness, contrast, edges; no learning."""

import torch
import torch.nn.functional as F

SOBEL = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]).expand(3, 1, 3, 3)


def prepare(photo, kernel):
    bright = photo * 1.2
    even = bright - bright.mean(dim=(2, 3), keepdim=True)
    scaled = even / even.std(dim=(2, 3), keepdim=True)
    edges = F.conv2d(scaled, kernel, padding=1, groups=3)
    sharp = scaled + edges
    return F.avg_pool2d(sharp, 4)


@torch.no_grad()
def catalogue(sheets):
    kernel = SOBEL.cuda()
    small = []
    for _ in range(sheets):
        photo = torch.rand(8, 3, 1024, 1024, device="cuda")
        small.append(prepare(photo, kernel).cpu())
    return torch.cat(small)


print(catalogue(4).shape)
