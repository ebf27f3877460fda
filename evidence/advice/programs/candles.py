"""Candles that never burned: one network paints them, another looks for the brush."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

Z, SIDE, N = 128, 128, 32


def painter(w=64):
    layers, c = [nn.ConvTranspose2d(Z, 8 * w, 4), nn.BatchNorm2d(8 * w), nn.ReLU(True)], 8 * w
    for o in (8 * w, 4 * w, 2 * w, w):
        layers += [nn.ConvTranspose2d(c, o, 4, 2, 1), nn.BatchNorm2d(o), nn.ReLU(True)]
        c = o
    return nn.Sequential(*layers, nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh())


def critic(w=64):
    layers, c = [], 3
    for o in (w, 2 * w, 4 * w, 8 * w, 8 * w):
        layers += [spectral_norm(nn.Conv2d(c, o, 4, 2, 1)), nn.LeakyReLU(0.2)]
        c = o
    return nn.Sequential(*layers, spectral_norm(nn.Conv2d(c, 1, 4)), nn.Flatten(0))


G, D = painter().cuda(), critic().cuda()
opt_g = torch.optim.Adam(G.parameters(), 2e-4, (0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), 2e-4, (0.0, 0.9))
fixed = torch.randn(64, Z, 1, 1, device="cuda")
albums = []

for it in range(5):
    # two looks of the critic for each picture of the painter
    for _ in range(2):
        real = torch.rand(N, 3, SIDE, SIDE).mul_(2).sub_(1).cuda()
        painted = G(torch.randn(N, Z, 1, 1, device="cuda"))
        d_loss = (1 - D(real)).relu().mean() + (1 + D(painted.detach())).relu().mean()
        opt_d.zero_grad(set_to_none=False)
        d_loss.backward()
        opt_d.step()

    again = G(torch.randn(N, Z, 1, 1, device="cuda"))
    g_loss = -D(again).mean()
    opt_g.zero_grad(set_to_none=False)
    g_loss.backward()
    opt_g.step()

    if it % 2 == 0:
        G.eval()
        with torch.no_grad():
            albums.append(G(fixed).add(1).div(2))
        G.train()
    print(it, d_loss.item(), g_loss.item())

torch.cat(albums).cpu()
