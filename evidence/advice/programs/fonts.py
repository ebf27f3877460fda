"""Which font is it: pictures of letters are changed on the device in many ways, then a small patch net learns."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Letters(Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, i):
        return torch.randint(0, 256, (3, 224, 224), dtype=torch.uint8), i % 40


def change(letters):
    plain = letters.float() / 255
    turn = torch.empty(len(plain), device=plain.device).uniform_(-0.2, 0.2)
    where = torch.zeros(len(plain), 2, 3, device=plain.device)
    where[:, 0, 0], where[:, 1, 1] = turn.cos(), turn.cos()
    where[:, 0, 1], where[:, 1, 0] = -turn.sin(), turn.sin()
    turned = F.grid_sample(plain, F.affine_grid(where, plain.shape, align_corners=False), align_corners=False)
    light = torch.empty(len(plain), 1, 1, 1, device=plain.device).uniform_(0.6, 1.4)
    lit = turned * light
    grey = lit.mean(dim=1, keepdim=True)
    faded = torch.lerp(grey.expand_as(lit), lit, 0.7)
    noisy = faded + 0.05 * torch.randn_like(faded)
    return (noisy.clamp(0, 1) - 0.5) / 0.25


class Fonts(nn.Module):
    def __init__(self, width=192, patch=16, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.mixers = nn.ModuleList(nn.Linear(196, 196) for _ in range(depth))
        self.head = nn.Linear(width, 40)

    def forward(self, x):
        x = self.patches(x).flatten(2)
        for mixer in self.mixers:
            x = x + F.gelu(mixer(x))
        return self.head(x.mean(dim=2))


def main():
    fonts = Fonts().cuda()
    optimizer = torch.optim.AdamW(fonts.parameters(), lr=1e-3)
    for letters, kind in DataLoader(Letters(), batch_size=64, shuffle=True):
        seen = change(letters.cuda())
        loss = F.cross_entropy(fonts(seen), kind.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())


main()
