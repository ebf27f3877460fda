"""Streets in pictures: what is road, what is not, and where a net of torchvision does not know; nothing is learned."""

import torch
from torchvision.models.segmentation import fcn_resnet50


def unsure(chance):
    """bits"""
    return -(chance * chance.log2()).sum(dim=1)


@torch.no_grad()
def survey(net, streets):
    found = []
    for pictures in streets:
        answer = net(pictures.cuda())
        chance = answer["out"].softmax(dim=1)
        sure, kind = chance.max(dim=1)
        doubt = unsure(chance)
        road = ((kind == 3) & (doubt < 0.5)).float().mean(dim=(1, 2))
        found.append(torch.stack([road, sure.mean(dim=(1, 2))]).cpu())
    return torch.cat(found, dim=1)


def main():
    net = fcn_resnet50(weights=None, weights_backbone=None, num_classes=60, aux_loss=True).cuda().eval()
    streets = torch.utils.data.DataLoader(torch.rand(8, 3, 384, 384), batch_size=4)
    print(survey(net, streets).shape)


main()
