"""A residual network on generated pictures: DataLoader, SGD with momentum, an accuracy pass after each epoch."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(5)
        self.seeds = torch.randint(1 << 30, (count,), generator=generator).tolist()

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seeds[index])
        label = self.seeds[index] % 10
        return torch.randn(3, 24, 24, generator=generator) + label / 10, label


class Residual(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), Residual(16, 16), Residual(16, 32, 2),
        Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def main(check: Callable[[str], None] = lambda name: None, epochs: int = 2, workers: int = 0, count: int = 80) -> float:
    torch.manual_seed(2)
    train = DataLoader(Pictures(count), batch_size=16, shuffle=True, num_workers=workers)
    test = DataLoader(Pictures(32), batch_size=16, num_workers=workers)
    model = network()
    check("model")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    model[4].register_full_backward_hook(lambda module, gin, gout: check("inside backward"))
    total = 0.0
    for _ in range(epochs):
        model.train()
        for x, y in train:
            check("batch")
            loss = F.cross_entropy(model(x), y)
            check("forward")
            optimizer.zero_grad()
            loss.backward()
            check("backward")
            optimizer.step()
            check("step")
            total += loss.item()
        model.eval()
        with torch.inference_mode():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
        check("epoch")
    return total + right


if __name__ == "__main__":
    print(f"{main():.4f}")
