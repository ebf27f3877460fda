"""Generator and discriminator with an optimizer each; pictures of fixed noise are kept for the report."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(64, 512), nn.LeakyReLU(0.2), nn.Linear(512, 3072), nn.Tanh())
D = nn.Sequential(nn.Linear(3072, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
fixed = torch.randn(16, 64)  #: input
samples = []
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)  #: input
for step in range(24):
    real = torch.rand(64, 3072)  #: input
    fake = G(torch.randn(64, 64))
    opt_d.zero_grad()
    loss_d = criterion(D(real), ones) + criterion(D(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = criterion(D(fake), ones)
    loss_g.backward()
    opt_g.step()
    if step == 12:
        with torch.no_grad():
            samples.append(G(fixed))  #: kept
