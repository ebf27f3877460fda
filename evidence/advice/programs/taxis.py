"""Taxis seen from a bridge: what make, how full and how fast, asked of one pair of eyes."""

import argparse

import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Bridge(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = torch.rand(3, self.size, self.size)
        return picture, torch.randint(0, 40, ()), torch.randint(0, 5, ()), torch.rand(())


class Questions(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(width, 512), nn.GELU(), nn.Dropout(0.2))
        self.heads = nn.ModuleDict({"make": nn.Linear(512, 40), "seats": nn.Linear(512, 5), "speed": nn.Linear(512, 1)})

    def forward(self, x):
        x = self.shared(x)
        return {name: head(x) for name, head in self.heads.items()}


def losses(answers, make, seats, speed):
    return {
        "make": F.cross_entropy(answers["make"], make),
        "seats": F.cross_entropy(answers["seats"], seats),
        "speed": F.smooth_l1_loss(answers["speed"].squeeze(1), speed),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eyes", default="regnety_008")
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--rate", type=float, default=1e-3)
    args = parser.parse_args()

    eyes = timm.create_model(args.eyes, num_classes=0).cuda()
    eyes.eval()
    questions = Questions(eyes.num_features).cuda()
    optimizer = torch.optim.AdamW(questions.parameters(), lr=args.rate)
    loader = DataLoader(Bridge(args.rows * 5, args.size), batch_size=args.rows, shuffle=True)
    weights = {"make": 1.0, "seats": 0.5, "speed": 2.0}

    for number, batch in enumerate(loader):
        picture, *truth = [part.cuda() for part in batch]
        seen = eyes(picture)
        answers = questions(seen)
        parts = losses(answers, *truth)
        loss = sum(weights[name] * part for name, part in parts.items())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(number, {name: round(part.item(), 3) for name, part in parts.items()})


if __name__ == "__main__":
    main()
