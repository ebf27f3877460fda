"""Knowledge distillation: a ResNet-18 learns from the softened answers of a ResNet-101."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import models

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Config:
    classes = 200
    image_size = 128
    batch_size = 48
    steps = 5
    temperature = 4.0
    alpha = 0.7
    lr = 0.05


class Synthetic(Dataset):
    def __init__(self, length, size, classes):
        self.length, self.size, self.classes = length, size, classes

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.rand(3, self.size, self.size), index % self.classes


class DistillationLoss(nn.Module):
    def __init__(self, temperature, alpha):
        super().__init__()
        self.t, self.alpha = temperature, alpha

    def forward(self, student_logits, teacher_logits, labels):
        soft_targets = F.softmax(teacher_logits / self.t, dim=-1)
        soft_prob = F.log_softmax(student_logits / self.t, dim=-1)
        soft = F.kl_div(soft_prob, soft_targets, reduction="batchmean") * self.t**2
        hard = F.cross_entropy(student_logits, labels)
        return self.alpha * soft + (1 - self.alpha) * hard


def evaluate(model, loader):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(DEVICE), labels.to(DEVICE)
            predicted = model(images).argmax(dim=1)
            correct += (predicted == labels).sum().item()
            total += labels.size(0)
    return 100 * correct / total


def distill(teacher, student, loader, cfg):
    criterion = DistillationLoss(cfg.temperature, cfg.alpha)
    optimizer = torch.optim.SGD(student.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    teacher.eval()
    student.train()
    running = 0.0
    for i, (images, labels) in enumerate(loader):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        teacher_logits = teacher(images)
        student_logits = student(images)
        loss = criterion(student_logits, teacher_logits.detach(), labels)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        print(f"[{i + 1}/{len(loader)}] {running / (i + 1):.4f}")


def main():
    cfg = Config()
    train_set = Synthetic(cfg.batch_size * cfg.steps, cfg.image_size, cfg.classes)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True)
    test_loader = DataLoader(Synthetic(128, cfg.image_size, cfg.classes), batch_size=64)

    teacher = models.resnet101(weights=None, num_classes=cfg.classes).to(DEVICE)
    student = models.resnet18(weights=None, num_classes=cfg.classes).to(DEVICE)
    print(f"teacher: {evaluate(teacher, test_loader):.2f}")
    distill(teacher, student, train_loader, cfg)
    print(f"student: {evaluate(student, test_loader):.2f}")


if __name__ == "__main__":
    main()
