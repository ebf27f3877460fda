"""Objects as points, with Accelerate: a feature pyramid of torchvision, maps of centres, sizes and offsets."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

CLASSES, SIZE, STRIDE, OBJECTS = 80, 384, 4, 32


class Street(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        side = SIZE // STRIDE
        image = torch.full((3, SIZE, SIZE), index / 40)
        heat = torch.zeros(CLASSES, side, side)
        place = torch.zeros(OBJECTS, dtype=torch.long)
        shape = torch.zeros(OBJECTS, 4)
        for n in range(8):
            row, column = (index * 5 + n * 11) % side, (index * 3 + n * 7) % side
            heat[(index + n) % CLASSES, row, column] = 1
            place[n] = row * side + column
            shape[n] = torch.tensor([20.0 + n, 12.0, 0.5, 0.5])
        return image, heat, place, shape


def tower(width, out):
    return nn.Sequential(nn.Conv2d(256, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, out, 1))


class CenterNet(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.backbone = resnet_fpn_backbone(
            backbone_name="resnet34", weights=None, norm_layer=nn.BatchNorm2d, trainable_layers=5
        )
        self.heat = tower(width, CLASSES)
        self.size = tower(width, 2)
        self.offset = tower(width, 2)

    def forward(self, images):
        finest = self.backbone(images)["0"]
        return self.heat(finest), self.size(finest), self.offset(finest)


def focal_loss(logits, target, alpha=2, beta=4):
    pred = torch.sigmoid(logits).clamp(1e-4, 1 - 1e-4)
    positive = target.eq(1).float()
    pos_loss = torch.log(pred) * torch.pow(1 - pred, alpha) * positive
    neg_loss = torch.log(1 - pred) * torch.pow(pred, alpha) * torch.pow(1 - target, beta) * (1 - positive)
    return -(pos_loss + neg_loss).sum() / positive.sum().clamp(min=1)


def regression_loss(size, offset, place, shape):
    maps = torch.cat([size, offset], dim=1).flatten(2)
    picked = maps.gather(2, place[:, None, :].expand(-1, 4, -1)).transpose(1, 2)
    mask = (shape.abs().sum(-1, keepdim=True) > 0).float()
    return F.l1_loss(picked * mask, shape * mask, reduction="sum") / mask.sum().clamp(min=1)


def main():
    accelerator = Accelerator()
    model = CenterNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-4)
    loader = DataLoader(Street(), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()

    history = []
    for step, (images, heat, place, shape) in enumerate(loader):
        heat_logits, size, offset = model(images)
        loss = focal_loss(heat_logits, heat) + 0.1 * regression_loss(size, offset, place, shape)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 35.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss.detach())
        accelerator.print(step, loss.item())
    accelerator.print("mean", torch.stack(history).mean().item())


if __name__ == "__main__":
    main()
