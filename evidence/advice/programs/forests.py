"""Trees from the air, for a day: pixels of all flights, then slices of them; nothing is learned."""

import torch

flights = torch.stack([torch.rand(4, 768, 768) for _ in range(40)]).cuda()
weights = torch.rand(8, 4, 5, 5, device="cuda")


@torch.inference_mode()
def green(slices):
    leaf = torch.nn.functional.conv2d(slices, weights, padding=2)
    return leaf.amax(dim=1).flatten(1).median(dim=1).values


print(torch.cat([green(part) for part in flights.split(4)]).shape)
