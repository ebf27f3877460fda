"""What bakers do, from short films: an R3D of torchvision; the films are long, so few at once."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.models.video import r3d_18


class Films(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return torch.rand(3, 12, 80, 80), i % 7


class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value):
        self.total = self.total + value
        self.count += 1


def main():
    net = r3d_18(num_classes=7).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    mean = Mean()
    for films, kinds in DataLoader(Films(), batch_size=3):
        films = films.cuda(non_blocking=True)
        kinds = kinds.cuda(non_blocking=True)
        scores = net(films)
        loss = F.cross_entropy(scores, kinds)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        plan.step()
        mean.add(loss)
    print(mean.total.item() / mean.count)


main()
