"""A detector of one stage: a Darknet-like body, boxes from a grid, decoded for a validation set after training."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES = 20
ANCHORS = ((0.08, 0.10), (0.20, 0.25), (0.45, 0.50))
SIZE = 256
GRID = SIZE // 16


class Boxes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.rand(3, SIZE, SIZE)
        target = torch.zeros(len(ANCHORS), GRID, GRID, 6)  # objectness, x, y, w, h, class
        for n in range(5):
            row, column = (index * 3 + n * 2) % GRID, (index + n * 5) % GRID
            target[n % len(ANCHORS), row, column] = torch.tensor([1, 0.5, 0.5, 0.2, 0.3, (index + n) % CLASSES])
        return image, target


def conv(cin, cout, kernel=3, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1)
    )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.squeeze = conv(channels, channels // 2, kernel=1)
        self.widen = conv(channels // 2, channels)

    def forward(self, x):
        return x + self.widen(self.squeeze(x))


class Detector(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256, 512), repeats=(1, 2, 4, 4)):
        super().__init__()
        self.stem = conv(3, widths[0])
        stages = []
        for cin, cout, count in zip(widths, widths[1:], repeats):
            stages.append(nn.Sequential(conv(cin, cout, stride=2), *(Residual(cout) for _ in range(count))))
        self.stages = nn.ModuleList(stages)
        self.head = nn.Sequential(conv(512, 512), nn.Conv2d(512, len(ANCHORS) * (5 + CLASSES), 1))

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        out = self.head(x)
        b, _, h, w = out.shape
        return out.reshape(b, len(ANCHORS), 5 + CLASSES, h, w).permute(0, 1, 3, 4, 2)


def detection_loss(pred, target):
    mask = target[..., 0]
    found = F.binary_cross_entropy_with_logits(pred[..., 0], mask, reduction="none")
    objectness = (found * (mask + 0.5 * (1 - mask))).mean()
    place = ((pred[..., 1:3].sigmoid() - target[..., 1:3]).square().sum(-1) * mask).mean()
    shape = ((pred[..., 3:5] - target[..., 3:5]).square().sum(-1) * mask).mean()
    kinds = F.cross_entropy(pred[..., 5:].flatten(0, 3), target[..., 5].flatten().long(), reduction="none")
    return objectness + 5 * (place + shape) + (kinds * mask.flatten()).mean()


def decode(pred, top=50):
    grid = torch.arange(GRID, device=pred.device)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    sizes = torch.tensor(ANCHORS, device=pred.device).view(1, -1, 1, 1, 2)
    centers = (pred[..., 1:3].sigmoid() + torch.stack([x, y], dim=-1)) / GRID
    boxes = torch.cat([centers, sizes * pred[..., 3:5].exp()], dim=-1).flatten(1, 3)
    scores = (pred[..., 0].sigmoid().unsqueeze(-1) * pred[..., 5:].softmax(-1)).flatten(1, 3)
    best, order = scores.max(-1).values.topk(top, dim=1)
    return boxes.gather(1, order.unsqueeze(-1).expand(-1, -1, 4)), best


train_loader = DataLoader(Boxes(48), batch_size=8, shuffle=True)
val_loader = DataLoader(Boxes(48), batch_size=8)
model = Detector().to(DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)

model.train()
mean_loss = []
for step, (x, y) in enumerate(train_loader):
    x, y = x.to(DEVICE), y.to(DEVICE)
    out = model(x)
    loss = detection_loss(out, y)
    mean_loss.append(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("mean loss", (sum(mean_loss) / len(mean_loss)).item())

model.eval()
val_loss, detections = 0, []
for x, y in val_loader:
    x, y = x.to(DEVICE), y.to(DEVICE)
    out = model(x)
    val_loss += detection_loss(out, y)
    detections.append(decode(out))
print("validation", (val_loss / len(val_loader)).item(), len(detections))
