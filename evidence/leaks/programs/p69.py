"""Variational autoencoder in epochs of six batches; the terms of the bound are averaged when an epoch ends."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(50, 2 * 8)
        self.decode = nn.Sequential(nn.Linear(8, 50), nn.ReLU(), nn.Linear(50, 50))
        self.outputs = []

    def training_step(self, x):
        mean, logvar = self.encode(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        recon = F.mse_loss(self.decode(z), x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean()
        self.outputs.append({"recon": recon, "kl": kl, "mean": mean})
        return recon + kl

    def epoch_end(self):
        recon = sum(o["recon"].item() for o in self.outputs) / len(self.outputs)
        active = torch.cat([o["mean"] for o in self.outputs]).var(dim=0) > 0.01
        kl = sum(o["kl"].item() for o in self.outputs) / len(self.outputs)
        self.outputs.clear()
        return recon, kl, int(active.sum())


torch.manual_seed(85)
model = VAE()
opt = torch.optim.Adamax(model.parameters(), lr=3e-3)
report = []
for step in range(int(sys.argv[1])):
    basis = torch.randn(20, 4)
    loss = model.training_step(basis.repeat(1, 13)[:, :50])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 6 == 5:
        report.append("recon {:.2f} kl {:.2f} active {}".format(*model.epoch_end()))
print(report[0], report[-1], sep="\n")
