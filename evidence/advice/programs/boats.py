"""Boats in the harbour by their shape, learned from the quay and asked for again from the water."""
import argparse

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--kinds", type=int, default=14)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def make_loader(count, batch, args, shuffle=False):
    pictures = torch.randint(0, 256, (count, 3, args.size, args.size), dtype=torch.uint8)
    return DataLoader(TensorDataset(pictures, torch.randint(0, args.kinds, (count,))), batch, shuffle=shuffle)


def normalize(pictures):
    mean = torch.tensor([0.485, 0.456, 0.406], device=pictures.device).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], device=pictures.device).view(1, 3, 1, 1)
    return (pictures.float() / 255 - mean) / std


def train_epoch(model, loader, optimizer):
    model.train()
    for pictures, kinds in loader:
        pictures = normalize(pictures.cuda(non_blocking=True))
        out = model(pictures)
        loss = F.cross_entropy(out, kinds.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def views(pictures):
    yield pictures
    yield pictures.flip(-1)
    yield pictures.roll(4, dims=-1)


def evaluate(model, loader):
    model.eval()
    found, right = [], []
    for pictures, kinds in loader:
        pictures = normalize(pictures.cuda(non_blocking=True))
        votes = [model(view).softmax(dim=1) for view in views(pictures)]
        found.append(torch.stack(votes).mean(dim=0))
        right.append(kinds)
    found = torch.cat(found).argmax(dim=1).cpu()
    return (found == torch.cat(right)).float().mean().item()


def main():
    args = parse()
    model = torchvision.models.resnet34(num_classes=args.kinds).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    train = make_loader(96, 32, args, shuffle=True)
    test = make_loader(96, 48, args)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train, optimizer)
        print(epoch, loss, evaluate(model, test))


if __name__ == "__main__":
    main()
