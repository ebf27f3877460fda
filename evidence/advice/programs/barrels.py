"""SimCLR: two views of each picture, a ResNet-50 that pulls them together, nearest neighbours as a check."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--feature-dim", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


class PairDataset(Dataset):
    """Two augmented views and the label (which only the check uses)."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.rand(3, self.size, self.size)
        return image.flip(-1), image * 0.8 + 0.1, index % 10


class SimCLR(nn.Module):
    def __init__(self, feature_dim):
        super().__init__()
        self.encoder = torchvision.models.resnet50(weights=None)
        width = self.encoder.fc.in_features
        self.encoder.fc = nn.Identity()
        self.projector = nn.Sequential(
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, feature_dim),
        )

    def forward(self, x):
        h = self.encoder(x)
        z = self.projector(h)
        return F.normalize(h, dim=-1), F.normalize(z, dim=-1)


def nt_xent(z1, z2, temperature):
    n = len(z1)
    z = torch.cat([z1, z2], dim=0)
    sim = z @ z.t() / temperature
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), -1e9)
    targets = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return F.cross_entropy(sim, targets)


def knn(model, memory_loader, test_loader, device, k=20, classes=10):
    model.eval()
    bank, labels = [], []
    right = total = 0
    with torch.no_grad():
        for x, _, y in memory_loader:
            bank.append(model(x.to(device))[0])
            labels.append(y.to(device))
        bank, labels = torch.cat(bank).t(), torch.cat(labels)
        for x, _, y in test_loader:
            feature, _ = model(x.to(device))
            weights, indices = (feature @ bank).topk(k, dim=-1)
            votes = F.one_hot(labels[indices], classes) * (weights / 0.1).exp().unsqueeze(-1)
            right += (votes.sum(1).argmax(-1).cpu() == y).sum().item()
            total += len(y)
    model.train()
    return right / total


def main():
    args = parse()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_loader = DataLoader(
        PairDataset(args.batch_size * args.steps, args.size), batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    memory_loader = DataLoader(PairDataset(512, args.size), batch_size=256)
    test_loader = DataLoader(PairDataset(256, args.size), batch_size=256)

    model = SimCLR(args.feature_dim).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-6)

    total_loss = 0.0
    for step, (x1, x2, _) in enumerate(train_loader, 1):
        x1, x2 = x1.to(device), x2.to(device)
        _, z1 = model(x1)
        _, z2 = model(x2)
        loss = nt_xent(z1, z2, args.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
        print(f"step {step}: {total_loss / step:.4f}")
    print("knn:", knn(model, memory_loader, test_loader, device))


if __name__ == "__main__":
    main()
