"""Look-alikes: features of a gallery and of queries from a ConvNeXt, and which gallery pictures come nearest."""
import argparse

import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="convnext_tiny")
parser.add_argument("--gallery", type=int, default=64)
parser.add_argument("--queries", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--topk", type=int, default=5)


class Gallery(Dataset):
    def __init__(self, length, transform=None):
        self.length = length
        self.transform = transform

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        image = torch.rand(3, 1, 1).expand(3, 160, 160).contiguous()
        return self.transform(image) if self.transform else image


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.std = torch.tensor(std).view(3, 1, 1)

    def __call__(self, image):
        return (image - self.mean) / self.std


class Extractor:
    def __init__(self, name, device):
        self.device = device
        self.model = timm.create_model(name, pretrained=False, num_classes=0).to(device)
        self.model.eval()
        config = self.model.pretrained_cfg
        self.transform = Normalize(config["mean"], config["std"])

    def __call__(self, dataset, batch_size):
        features = []
        for images in DataLoader(dataset, batch_size=batch_size):
            images = images.to(self.device)
            straight = self.model(images)
            mirrored = self.model(images.flip(-1))
            features.append(F.normalize((straight + mirrored) / 2, dim=-1))
        return torch.cat(features)


def rank(queries, gallery, k):
    similarity = queries @ gallery.t()
    scores, indices = similarity.topk(k, dim=1)
    return scores, indices


def main():
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    extractor = Extractor(args.model, device)
    gallery = extractor(Gallery(args.gallery, extractor.transform), args.batch_size)
    queries = extractor(Gallery(args.queries, extractor.transform), args.batch_size)
    scores, indices = rank(queries, gallery, args.topk)
    for number, (row, score) in enumerate(zip(indices.tolist(), scores.tolist())):
        if number < 3:
            print(number, row, [round(value, 3) for value in score])


if __name__ == "__main__":
    main()
