"""Coins, both sides at once: SimCLR on a ResNet-18 of torchvision, with Accelerate."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18
from torchvision.transforms import v2

TWIST = v2.Compose([v2.RandomResizedCrop(96, antialias=True), v2.RandomHorizontalFlip(), v2.GaussianBlur(5)])


class Coins(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        coin = torch.rand(3, 112, 112)
        return TWIST(coin), TWIST(coin)


def agree(a, b, heat=0.1):
    both = F.normalize(torch.cat([a, b]), dim=1)
    alike = both @ both.T / heat
    alike = alike.masked_fill(torch.eye(len(both), dtype=torch.bool, device=both.device), -1e9)
    other = torch.arange(len(both), device=both.device).roll(len(a))
    return F.cross_entropy(alike, other)


def main():
    accelerator = Accelerator()
    net = resnet18(num_classes=128)
    net.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    coins = DataLoader(Coins(), batch_size=24, shuffle=True)
    net, optimizer, coins = accelerator.prepare(net, optimizer, coins)
    for step, (heads, tails) in enumerate(coins):
        loss = agree(net(heads), net(tails))
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(step, loss.item())


main()
