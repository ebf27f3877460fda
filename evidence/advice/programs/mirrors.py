"""A picture in another's manner: VGG of torchvision compares them, and the picture itself is what learns."""

import torch
import torch.nn.functional as F
from torchvision.models import vgg11

MANNER, MATTER = (1, 4, 7), 8


def look(layers, picture):
    manner, matter = [], None
    for number, layer in enumerate(layers):
        picture = layer(picture)
        if number in MANNER:
            flat = picture.flatten(2)
            manner.append(flat @ flat.mT / flat.shape[-1])
        if number == MATTER:
            matter = picture
    return manner, matter


def main():
    layers = vgg11(weights=None).features[:9].cuda().eval()
    matter = look(layers, torch.rand(1, 3, 512, 512).cuda())[1]
    manner = look(layers, torch.rand(1, 3, 512, 512).cuda())[0]
    picture = torch.rand(1, 3, 512, 512, device="cuda", requires_grad=True)
    optimizer = torch.optim.Adam([picture], lr=0.05)
    for step in range(4):
        now, here = look(layers, picture)
        loss = F.mse_loss(here, matter.detach())
        for a, b in zip(now, manner):
            loss = loss + 1e3 * F.mse_loss(a, b.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
