"""Caverns lit by a lamp that walks through them, to be seen again from where nobody has stood."""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


class Field(nn.Module):
    def __init__(self, depth=6, width=192, bands_of_place=10, bands_of_way=4):
        super().__init__()
        self.bands_of_place, self.bands_of_way = bands_of_place, bands_of_way
        place, way = 3 + 6 * bands_of_place, 3 + 6 * bands_of_way
        sizes = [place] + [width] * depth
        self.trunk = nn.ModuleList([nn.Linear(i, o) for i, o in zip(sizes, sizes[1:])])
        self.density = nn.Linear(width, 1)
        self.bottleneck = nn.Linear(width, width)
        self.color = nn.Sequential(nn.Linear(width + way, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid())

    def forward(self, places, ways):
        h = waves(places, self.bands_of_place).float()
        for layer in self.trunk:
            h = torch.relu(layer(h))
        sigma = F.softplus(self.density(h)).squeeze(-1)
        h = torch.cat([self.bottleneck(h), waves(ways, self.bands_of_way).float()], dim=-1)
        return self.color(h), sigma


def waves(x, bands):
    parts = [x]
    for k in range(bands):
        parts += [torch.sin(2**k * x), torch.cos(2**k * x)]
    return torch.cat(parts, dim=-1)


def rays(height, width, focal):
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    ways = np.stack([(x - width / 2) / focal, -(y - height / 2) / focal, -np.ones_like(x, dtype=float)], axis=-1)
    ways = torch.from_numpy(ways.reshape(-1, 3)).cuda()
    return torch.zeros_like(ways), ways


def render(field, starts, ways, samples=64, near=2.0, far=6.0):
    depths = torch.from_numpy(np.linspace(near, far, samples)).cuda()
    depths = depths + torch.rand(len(starts), samples, device="cuda") * (far - near) / samples
    places = starts[:, None] + ways[:, None] * depths[..., None]
    ways = F.normalize(ways, dim=-1)[:, None].repeat(1, samples, 1)
    color, sigma = field(places, ways)
    gaps = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e10)], dim=-1)
    alpha = 1 - torch.exp(-sigma * gaps)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
    return ((alpha * clear)[..., None] * color).sum(dim=1)


field = Field().cuda()
optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
starts, ways = rays(96, 96, 110.0)
picture = torch.rand(96 * 96, 3, device="cuda")

for step in range(6):
    chosen = torch.randint(0, len(ways), (2048,), device="cuda")
    seen = render(field, starts[chosen], ways[chosen])
    loss = ((seen - picture[chosen]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if step % 3 == 2:
        strips = [render(field, s, w, samples=48) for s, w in zip(starts.split(1536), ways.split(1536))]
        frame = torch.cat(strips).clamp(0, 1).reshape(96, 96, 3)
        print(step, "error", (frame - picture.view(96, 96, 3)).abs().mean().item())
