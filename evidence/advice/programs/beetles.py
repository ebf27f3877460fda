"""Beetles under a leaf: most of each picture is covered, and the rest must say what lies beneath."""
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
        weights = weights.softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Leaf(nn.Module):
    def __init__(self, side=160, patch=8, dim=256, shown=0.25):
        super().__init__()
        self.patch, self.count = patch, (side // patch) ** 2
        self.shown = int(self.count * shown)
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.place = nn.Parameter(torch.randn(1, self.count, dim) * 0.02)
        self.encoder = nn.Sequential(*[Layer(dim, 8) for _ in range(6)])
        self.covered = nn.Parameter(torch.zeros(1, 1, dim // 2))
        self.to_decoder = nn.Linear(dim, dim // 2)
        self.decoder_place = nn.Parameter(torch.randn(1, self.count, dim // 2) * 0.02)
        self.decoder = nn.Sequential(*[Layer(dim // 2, 4) for _ in range(2)])
        self.head = nn.Linear(dim // 2, 3 * patch**2)

    def cut(self, pictures):
        b, c, h, w = pictures.shape
        x = pictures.reshape(b, c, h // self.patch, self.patch, w // self.patch, self.patch)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(b, self.count, -1)

    def forward(self, pictures):
        x = self.embed(pictures).flatten(2).transpose(1, 2) + self.place
        b, n, d = x.shape
        order = torch.rand(b, n, device=x.device).argsort(dim=1)
        back = order.argsort(dim=1)
        x = torch.gather(x, 1, order[:, : self.shown, None].repeat(1, 1, d))
        x = self.to_decoder(self.encoder(x))
        hidden = self.covered.repeat(b, n - self.shown, 1)
        x = torch.cat([x, hidden], dim=1)
        x = torch.gather(x, 1, back[:, :, None].repeat(1, 1, d // 2)) + self.decoder_place
        guess = self.head(self.decoder(x))
        truth = self.cut(pictures)
        truth = (truth - truth.mean(-1, keepdim=True)) / (truth.var(-1, keepdim=True) + 1e-6).sqrt()
        weight = (back >= self.shown).float()
        return (((guess - truth) ** 2).mean(-1) * weight).sum() / (b * (n - self.shown))


torch.manual_seed(0)
model = Leaf().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-4, betas=(0.9, 0.95))
for step in range(5):
    pictures = torch.rand(32, 3, 160, 160).cuda()
    loss = model(pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, float(loss))
