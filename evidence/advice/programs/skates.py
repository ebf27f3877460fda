"""Denoising diffusion of small pictures: a U-Net with attention, its running average, pictures drawn at the end."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, SIZE, BATCH = 1000, 64, 32


class Dots(Dataset):
    def __len__(self):
        return BATCH * 5

    def __getitem__(self, index):
        image = -torch.ones(3, SIZE, SIZE)
        image[index % 3, index % 50 : index % 50 + 12, index * 7 % 50 : index * 7 % 50 + 12] = 1
        return image


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1 = nn.GroupNorm(16, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.norm2 = nn.GroupNorm(16, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(emb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.skip(x)


class SpatialAttention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.norm = nn.GroupNorm(16, channels)
        self.attn = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x):
        b, c, h, w = x.shape
        seq = self.norm(x).flatten(2).transpose(1, 2)
        out, _ = self.attn(seq, seq, seq, need_weights=False)
        return x + out.transpose(1, 2).reshape(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, base=96, mults=(1, 2, 3), emb=384):
        super().__init__()
        self.base = base
        self.time = nn.Sequential(nn.Linear(base, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(3, base, 3, padding=1)
        widths = [base * m for m in mults]
        self.down = nn.ModuleList([ResBlock(i, o, emb) for i, o in zip([base, *widths], widths)])
        self.pool = nn.AvgPool2d(2)
        self.mid1 = ResBlock(widths[-1], widths[-1], emb)
        self.attn = SpatialAttention(widths[-1])
        self.mid2 = ResBlock(widths[-1], widths[-1], emb)
        wide = widths[::-1]
        self.up = nn.ModuleList([ResBlock(i + w, w, emb) for i, w in zip([wide[0], *wide], wide)])
        self.out = nn.Sequential(nn.GroupNorm(16, base), nn.SiLU(), nn.Conv2d(base, 3, 3, padding=1))

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.base))
        x, skips = self.inp(x), []
        for block in self.down:
            x = block(x, emb)
            skips.append(x)
            x = self.pool(x)
        x = self.mid2(self.attn(self.mid1(x, emb)), emb)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skips.pop()], dim=1), emb)
        return self.out(x)


betas = torch.linspace(1e-4, 0.02, STEPS, device=DEVICE)
alpha_bar = torch.cumprod(1 - betas, dim=0)
model = UNet().to(DEVICE)
ema = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
loader = DataLoader(Dots(), batch_size=BATCH, shuffle=True, drop_last=True)

for epoch in range(1):
    for x0 in loader:
        x0 = x0.to(DEVICE)
        t = torch.randint(0, STEPS, (x0.shape[0],), device=DEVICE)
        noise = torch.randn_like(x0)
        a = alpha_bar[t][:, None, None, None]
        noisy = a.sqrt() * x0 + (1 - a).sqrt() * noise
        pred = model(noisy, t)
        loss = F.mse_loss(pred, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(ema.parameters(), model.parameters()):
            slow.data.lerp_(fast.data, 0.001)
    print(epoch, loss.item())

x = torch.randn(64, 3, SIZE, SIZE, device=DEVICE)
with torch.no_grad():
    for i in reversed(range(STEPS - 6, STEPS)):
        t = torch.full((64,), i, device=DEVICE)
        eps = ema(x, t)
        x = (x - betas[i] / (1 - alpha_bar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
        x = x + betas[i].sqrt() * torch.randn_like(x)
print(x.shape)
