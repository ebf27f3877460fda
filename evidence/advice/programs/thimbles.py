"""Land cover of a large aerial picture: DeepLab on overlapping tiles, probabilities added up, classes written."""
import argparse

import torch
from torchvision.models.segmentation import deeplabv3_resnet50
from torchvision.transforms import functional as TF


def tiles(height, width, size, stride):
    for top in range(0, height - size + 1, stride):
        for left in range(0, width - size + 1, stride):
            yield top, left


class Segmenter:
    def __init__(self, classes, device):
        self.classes, self.device = classes, device
        self.net = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=classes)
        self.net.to(device).eval()

    def __call__(self, picture, size, stride, batch_size):
        picture = picture.to(self.device)
        _, height, width = picture.shape
        canvas = torch.zeros(self.classes, height, width, device=self.device)
        weight = torch.zeros(1, height, width, device=self.device)
        places = list(tiles(height, width, size, stride))
        for first in range(0, len(places), batch_size):
            some = places[first : first + batch_size]
            batch = torch.stack([picture[:, t : t + size, l : l + size] for t, l in some])
            batch = TF.normalize(batch, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
            out = self.net(batch)["out"]
            mirrored = self.net(batch.flip(-1))["out"].flip(-1)
            probs = (out.softmax(1) + mirrored.softmax(1)) / 2
            for (t, l), part in zip(some, probs.detach()):
                canvas[:, t : t + size, l : l + size] += part
                weight[:, t : t + size, l : l + size] += 1
        return (canvas / weight).argmax(0).byte()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pixels", type=int, default=1280)
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--stride", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=3)
    parser.add_argument("--classes", type=int, default=16)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    segmenter = Segmenter(args.classes, device)
    for number in range(2):
        picture = torch.rand(3, args.pixels, args.pixels)
        cover = segmenter(picture, args.tile, args.stride, args.batch_size)
        print(number, cover.shape, cover.float().mean().item())


if __name__ == "__main__":
    main()
