"""A small student learns from a wide teacher's answers and from its last map, tested after each epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T, ALPHA, BETA = 4.0, 0.7, 50.0


class Images(Dataset):
    def __init__(self, size, classes=100):
        self.size, self.classes = size, classes

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.full((3, 64, 64), index / self.size), index % self.classes


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout or stride != 1 else None

    def forward(self, x):
        out = F.relu(self.bn1(x))
        identity = x if self.short is None else self.short(out)
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out)))
        return out + identity


class WideResNet(nn.Module):
    def __init__(self, depth, widen, classes=100):
        super().__init__()
        n = (depth - 4) // 6
        widths = [16, 16 * widen, 32 * widen, 64 * widen]
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        layers = []
        for group, (cin, cout) in enumerate(zip(widths, widths[1:])):
            for j in range(n):
                layers.append(BasicBlock(cin if j == 0 else cout, cout, 2 if group and j == 0 else 1))
        self.layers = nn.ModuleList(layers)
        self.bn = nn.BatchNorm2d(widths[-1])
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = self.conv(x)
        for layer in self.layers:
            x = layer(x)
        x = F.relu(self.bn(x))
        return self.fc(x.mean((2, 3))), x


def attention(x):
    return F.normalize(x.pow(2).mean(1).flatten(1))


def distill(student_out, teacher_out, labels):
    logits, fmap = student_out
    t_logits, t_fmap = teacher_out
    soft = F.kl_div(F.log_softmax(logits / T, dim=1), F.softmax(t_logits / T, dim=1), reduction="batchmean") * T * T
    maps = (attention(fmap) - attention(t_fmap)).pow(2).mean()
    return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(logits, labels) + BETA * maps


def evaluate(net, loader):
    net.eval()
    correct = torch.zeros((), device=DEVICE)
    with torch.no_grad():
        for images, labels in loader:
            logits, _ = net(images.to(DEVICE))
            correct += (logits.argmax(1) == labels.to(DEVICE)).sum()
    net.train()
    return correct.item() / len(loader.dataset)


def main():
    train_loader = DataLoader(Images(256), batch_size=64, shuffle=True, drop_last=True)
    test_loader = DataLoader(Images(128), batch_size=64)
    teacher = WideResNet(28, 4).to(DEVICE)
    student = WideResNet(16, 2).to(DEVICE)
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    for epoch in range(2):
        for images, labels in train_loader:
            images, labels = images.to(DEVICE), labels.to(DEVICE)
            teacher_out = teacher(images)
            student_out = student(images)
            loss = distill(student_out, teacher_out, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), evaluate(student, test_loader))


if __name__ == "__main__":
    main()
