"""Waves by the buoy that saw them: MobileNetV3 of torchvision learns, an average of its weights is tested."""

import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import mobilenet_v3_small


class Waves(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return torch.rand(3, 160, 160), i % 12


def test(net, waves):
    net.eval()
    right = 0
    for pictures, buoys in waves:
        scores = net(pictures.cuda())
        right += (scores.argmax(1) == buoys.cuda()).sum().item()
    return right


def main():
    net = mobilenet_v3_small(num_classes=12).cuda()
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-5)
    learn = DataLoader(Waves(96), batch_size=32, shuffle=True)
    held_out = DataLoader(Waves(128), batch_size=64)
    for epoch in range(2):
        net.train()
        for pictures, buoys in learn:
            pictures, buoys = pictures.cuda(), buoys.cuda()
            loss = F.cross_entropy(net(pictures), buoys, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(net)
        print(epoch, loss.item(), test(average, held_out))


main()
