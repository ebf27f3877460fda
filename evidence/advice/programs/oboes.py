"""SimCLR on small pictures: two views of each, a ResNet-18 of torchvision, NT-Xent."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as models
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="SimCLR")
parser.add_argument("-a", "--arch", default="resnet18", choices=["resnet18", "resnet50"])
parser.add_argument("--epochs", default=1, type=int)
parser.add_argument("-b", "--batch-size", default=160, type=int)
parser.add_argument("--lr", default=3e-4, type=float)
parser.add_argument("--wd", default=1e-4, type=float)
parser.add_argument("--out-dim", default=128, type=int)
parser.add_argument("--temperature", default=0.07, type=float)
parser.add_argument("--size", default=96, type=int)
args = parser.parse_args()
args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class TwoViews(Dataset):
    def __init__(self, count, size):
        self.pictures = torch.rand(count, 3, size, size)

    def __len__(self):
        return len(self.pictures)

    def view(self, picture):
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        gain = 0.6 + 0.8 * torch.rand(3, 1, 1)
        return (picture * gain).clamp(0, 1) + 0.02 * torch.randn_like(picture)

    def __getitem__(self, i):
        return self.view(self.pictures[i]), self.view(self.pictures[i])


class ResNetSimCLR(nn.Module):
    def __init__(self, base_model, out_dim):
        super().__init__()
        self.backbone = getattr(models, base_model)(weights=None, num_classes=out_dim)
        dim_mlp = self.backbone.fc.in_features
        self.backbone.fc = nn.Sequential(nn.Linear(dim_mlp, dim_mlp), nn.ReLU(), self.backbone.fc)

    def forward(self, x):
        return self.backbone(x)


class SimCLR:
    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model.to(args.device), optimizer, scheduler
        self.criterion = nn.CrossEntropyLoss().to(args.device)

    def info_nce_loss(self, features):
        n = len(features)
        features = F.normalize(features, dim=1)
        similarity_matrix = torch.matmul(features, features.T)

        same = torch.eye(n, dtype=torch.bool, device=args.device)
        similarity_matrix = similarity_matrix.masked_fill(same, -1e9)
        labels = (torch.arange(n, device=args.device) + n // 2) % n
        return similarity_matrix / args.temperature, labels

    def train(self, train_loader):
        n_iter = 0
        for epoch_counter in range(args.epochs):
            for images in train_loader:
                images = torch.cat(images, dim=0)
                images = images.to(args.device)

                features = self.model(images)
                logits, labels = self.info_nce_loss(features)
                loss = self.criterion(logits, labels)

                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

                top1 = (logits.argmax(dim=1) == labels).float().mean()
                print(f"{n_iter}: loss {loss.item():.4f} top1 {100 * top1.item():.1f}")
                n_iter += 1

            self.scheduler.step()
            print(f"epoch {epoch_counter} lr {self.scheduler.get_last_lr()[0]:.2e}")


def main():
    dataset = TwoViews(5 * args.batch_size, args.size)
    train_loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = ResNetSimCLR(base_model=args.arch, out_dim=args.out_dim)
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=args.wd)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(train_loader), eta_min=0)
    SimCLR(model, optimizer, scheduler).train(train_loader)


if __name__ == "__main__":
    main()
