"""DGCNN classifies point clouds: neighbours in feature space, edge convolutions; accuracy on held-out clouds."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_POINTS, NUM_CLASSES, K = 1024, 40, 20


class Shapes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, item):
        angle = torch.linspace(0, 6.28 * (1 + item % 5), NUM_POINTS)
        points = torch.stack([angle.cos(), angle.sin(), torch.linspace(-1, 1, NUM_POINTS)])
        return points + 0.01 * torch.randn(3, NUM_POINTS), item % NUM_CLASSES


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    return pairwise_distance.topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=K):
    batch_size, num_dims, num_points = x.size()
    idx = knn(x, k)
    idx = (idx + torch.arange(batch_size, device=x.device).view(-1, 1, 1) * num_points).view(-1)
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size * num_points, -1)[idx, :].view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()


class EdgeConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(2 * cin, cout, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)
        self.act = nn.LeakyReLU(negative_slope=0.2)

    def forward(self, x):
        x = self.act(self.bn(self.conv(get_graph_feature(x))))
        return x.max(dim=-1)[0]


class DGCNN(nn.Module):
    def __init__(self, emb=1024):
        super().__init__()
        self.edges = nn.ModuleList([EdgeConv(3, 64), EdgeConv(64, 64), EdgeConv(64, 128), EdgeConv(128, 256)])
        self.conv5 = nn.Sequential(nn.Conv1d(512, emb, 1, bias=False), nn.BatchNorm1d(emb), nn.LeakyReLU(0.2))
        self.linear1 = nn.Linear(emb * 2, 512, bias=False)
        self.bn6 = nn.BatchNorm1d(512)
        self.dp1 = nn.Dropout(0.5)
        self.linear2 = nn.Linear(512, NUM_CLASSES)

    def forward(self, x):
        outs = []
        for edge in self.edges:
            x = edge(x)
            outs.append(x)
        x = self.conv5(torch.cat(outs, dim=1))
        x = torch.cat((F.adaptive_max_pool1d(x, 1).squeeze(-1), F.adaptive_avg_pool1d(x, 1).squeeze(-1)), 1)
        x = F.leaky_relu(self.bn6(self.linear1(x)), negative_slope=0.2)
        return self.linear2(self.dp1(x))


def main():
    train_loader = DataLoader(Shapes(80), batch_size=16, shuffle=True, drop_last=True)
    test_loader = DataLoader(Shapes(48), batch_size=16)
    model = DGCNN().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    model.train()
    train_loss = 0.0
    for data, label in train_loader:
        data, label = data.to(device), label.to(device)
        opt.zero_grad()
        logits = model(data)
        loss = F.cross_entropy(logits, label, label_smoothing=0.2)
        loss.backward()
        opt.step()
        train_loss += loss.item() * len(data)
    print("train", train_loss / 80)

    model.eval()
    test_pred, test_true, test_loss = [], [], 0.0
    for data, label in test_loader:
        data, label = data.to(device), label.to(device)
        logits = model(data)
        loss = F.cross_entropy(logits, label, label_smoothing=0.2)
        test_loss += loss.item() * len(data)
        test_pred.append(logits.argmax(dim=1))
        test_true.append(label)
    accuracy = (torch.cat(test_pred) == torch.cat(test_true)).float().mean()
    print("test", test_loss / 48, accuracy.item())


if __name__ == "__main__":
    main()
