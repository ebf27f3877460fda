"""Gems in a few kinds of facets: an autoencoder whose middle is a table of codes, as VQ-VAE has it, and a test behind."""

import torch
import torch.nn.functional as F
from torch import nn

CODES, WIDTH = 512, 64


class Facets(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.Sequential(
            nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU(), nn.Conv2d(128, WIDTH, 3, 1, 1)
        )
        self.codes = nn.Parameter(torch.randn(CODES, WIDTH))
        self.outward = nn.Sequential(
            nn.ConvTranspose2d(WIDTH, 128, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(128, 3, 4, 2, 1)
        )

    def forward(self, gems):
        seen = self.inward(gems)
        flat = seen.permute(0, 2, 3, 1).reshape(-1, WIDTH)
        far = flat.square().sum(1, keepdim=True) - 2 * flat @ self.codes.T + self.codes.square().sum(1)
        code = self.codes[far.argmin(1)]
        held = F.mse_loss(flat, code.detach()) * 0.25 + F.mse_loss(code, flat.detach())
        code = flat + (code - flat).detach()
        return self.outward(code.view(len(gems), *seen.shape[2:], WIDTH).permute(0, 3, 1, 2)), held


facets = Facets().cuda()
optimizer = torch.optim.AdamW(facets.parameters(), lr=2e-4)
for number in range(5):
    gems = torch.rand(32, 3, 128, 128).cuda()
    again, held = facets(gems)
    loss = F.mse_loss(again, gems) + held
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

facets.eval()
wrong = 0
for number in range(6):
    gems = torch.rand(32, 3, 128, 128).cuda()
    again, _ = facets(gems)
    wrong = wrong + F.l1_loss(again, gems)
print("wrong by", wrong / 6)
