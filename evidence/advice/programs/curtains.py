"""Curtains with holes in them, mended by a network that may only look at the cloth that is left."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class Cloth(Dataset):
    def __init__(self, pieces, side=256):
        self.pieces, self.side = pieces, side

    def __len__(self):
        return self.pieces

    def __getitem__(self, piece):
        whole = torch.rand(3, self.side, self.side)
        left = torch.ones(1, self.side, self.side)
        x, y = torch.randint(0, self.side // 2, (2,)).tolist()
        left[:, y : y + self.side // 3, x : x + self.side // 3] = 0
        return whole, left


class Mend(nn.Module):
    def __init__(self, i, o, kernel, stride=1, norm=True, slope=0.0):
        super().__init__()
        self.conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=not norm)
        self.norm = nn.BatchNorm2d(o) if norm else nn.Identity()
        self.slope, self.stride, self.kernel = slope, stride, kernel

    def forward(self, x, left):
        x = self.conv(x * left.repeat(1, x.shape[1], 1, 1))
        share = F.avg_pool2d(left, self.kernel, self.stride, self.kernel // 2)
        x = x * (share > 0) / share.clamp_min(1 / self.kernel**2)
        return F.leaky_relu(self.norm(x), self.slope), (share > 0).float()


class Mender(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [64, 128, 256, 512, 512, 512]
        self.down = nn.ModuleList([Mend(3, 64, 7, 2, norm=False)])
        self.down.extend(Mend(i, o, 5 if o < 256 else 3, 2) for i, o in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(Mend(sizes[k] + sizes[k - 1], sizes[k - 1], 3, slope=0.2) for k in (5, 4, 3, 2, 1))
        self.last = Mend(64 + 3, 3, 3, norm=False, slope=1.0)

    def forward(self, picture, left):
        stack, x, m = [(picture, left)], picture, left
        for layer in self.down:
            x, m = layer(x, m)
            stack.append((x, m))
        stack.pop()
        for layer in (*self.up, self.last):
            below, under = stack.pop()
            x = torch.cat([F.interpolate(x, scale_factor=2), below], dim=1)
            m = torch.maximum(F.interpolate(m, scale_factor=2), under)
            x, m = layer(x, m)
        return x


def penalty(mended, whole, left):
    hole = F.l1_loss((1 - left) * mended, (1 - left) * whole)
    rest = F.l1_loss(left * mended, left * whole)
    patched = left * whole + (1 - left) * mended
    seams = F.l1_loss(patched[..., 1:], patched[..., :-1]) + F.l1_loss(patched[..., 1:, :], patched[..., :-1, :])
    return 6 * hole + rest + 0.1 * seams


def main():
    accelerator = Accelerator()
    net = Mender()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(Cloth(60), batch_size=12, drop_last=True))
    for number, (whole, left) in enumerate(loader):
        mended = net(whole * left, left)
        loss = penalty(mended, whole, left)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(number, loss.item())


if __name__ == "__main__":
    main()
