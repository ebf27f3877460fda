"""Denoising diffusion on 64 x 64 images: a UNet with attention, a running mean of its weights, samples at the end."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TIMESTEPS = 1000


class Pictures(Dataset):
    def __init__(self, count=80):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.rand(3, 64, 64) * 2 - 1


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.qkv = nn.Conv2d(channels, channels * 3, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        sim = torch.einsum("bhdi,bhdj->bhij", q * (c // self.heads) ** -0.5, k)
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bhij,bhdj->bhdi", attn, v)
        return x + self.proj(out.reshape(b, c, h, w))


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim, attention=False):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.time = nn.Linear(tdim, cout)
        self.norm2 = nn.GroupNorm(8, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
        self.attn = Attention(cout) if attention else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.attn(h + self.skip(x))


class UNet(nn.Module):
    def __init__(self, base=64, mults=(1, 2, 4), tdim=256):
        super().__init__()
        self.tdim = tdim
        self.time_mlp = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.inp = nn.Conv2d(3, base, 3, padding=1)
        widths = [base * m for m in mults]
        self.downs = nn.ModuleList(ResBlock(i, o, tdim, o > base) for i, o in zip([base] + widths, widths))
        self.mid = ResBlock(widths[-1], widths[-1], tdim, True)
        self.ups = nn.ModuleList(
            ResBlock(i + s, s, tdim, s > base) for i, s in zip([widths[-1]] + widths[::-1], widths[::-1])
        )
        self.out = nn.Conv2d(base, 3, 3, padding=1)

    def forward(self, x, t):
        temb = self.time_mlp(timestep_embedding(t, self.tdim))
        x = self.inp(x)
        skips = []
        for block in self.downs:
            x = block(x, temb)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.mid(x, temb)
        for up in self.ups:
            x = F.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, skips.pop()], dim=1), temb)
        return self.out(x)


betas = torch.linspace(1e-4, 0.02, TIMESTEPS, device=DEVICE)
alphas = 1 - betas
alphas_bar = torch.cumprod(alphas, dim=0)

model = UNet().to(DEVICE)
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
loader = DataLoader(Pictures(), batch_size=16, shuffle=True)


def p_losses(x0, t):
    noise = torch.randn_like(x0)
    a = alphas_bar[t].view(-1, 1, 1, 1)
    x_t = a.sqrt() * x0 + (1 - a).sqrt() * noise
    pred = model(x_t, t)
    return F.mse_loss(pred, noise)


@torch.no_grad()
def sample(count, every=10, steps=40):
    x = torch.randn(count, 3, 64, 64, device=DEVICE)
    frames = []
    for i in reversed(range(steps)):
        t = torch.full((count,), i, device=DEVICE)
        eps = ema(x, t)
        x = (x - betas[i] / (1 - alphas_bar[i]).sqrt() * eps) / alphas[i].sqrt()
        if i > 0:
            x = x + betas[i].sqrt() * torch.randn_like(x)
        if i % every == 0:
            frames.append(x.clamp(-1, 1))
    return torch.stack(frames)


for step, images in enumerate(loader):
    images = images.to(DEVICE)
    t = torch.randint(0, TIMESTEPS, (images.shape[0],), device=DEVICE)
    optimizer.zero_grad()
    loss = p_losses(images, t)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(ema.parameters(), model.parameters()):
            old.lerp_(new, 0.005)
    print(step, loss.item())
print(sample(16).shape)
