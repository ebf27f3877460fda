"""ResNet-18 for images of 32 x 32, trained from scratch and tested after each epoch."""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--classes", type=int, default=10)
args = parser.parse_args()

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, blocks=(2, 2, 2, 2), num_classes=10):
        super().__init__()
        self.in_planes = 64
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = self._make_layer(64, blocks[0], 1)
        self.layer2 = self._make_layer(128, blocks[1], 2)
        self.layer3 = self._make_layer(256, blocks[2], 2)
        self.layer4 = self._make_layer(512, blocks[3], 2)
        self.linear = nn.Linear(512, num_classes)

    def _make_layer(self, planes, count, stride):
        layers = []
        for s in [stride] + [1] * (count - 1):
            layers.append(BasicBlock(self.in_planes, planes, s))
            self.in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer1(out)
        out = self.layer2(out)
        out = self.layer3(out)
        out = self.layer4(out)
        out = F.avg_pool2d(out, 4)
        return self.linear(out.flatten(1))


def images(count):
    return TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(0, args.classes, (count,)))


trainloader = DataLoader(images(1280), batch_size=256, shuffle=True)
testloader = DataLoader(images(3000), batch_size=1000)

net = ResNet(num_classes=args.classes).to(DEVICE)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()

        train_loss += loss.item()
        total += targets.size(0)
        correct += outputs.argmax(1).eq(targets).sum().item()
    print(f"epoch {epoch}  loss {train_loss / (batch_idx + 1):.3f}  acc {100 * correct / total:.2f}")


def test(epoch):
    net.eval()
    test_loss, correct, total = 0, 0, 0
    for inputs, targets in testloader:
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        scores = net(inputs)
        loss = criterion(scores, targets)
        test_loss += loss.item()
        _, predicted = scores.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print(f"epoch {epoch}  test loss {test_loss / len(testloader):.3f}  acc {100 * correct / total:.2f}")


for epoch in range(args.epochs):
    start = time.time()
    train(epoch)
    test(epoch)
    scheduler.step()
    print(f"{time.time() - start:.1f} s")
