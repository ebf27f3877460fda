"""Adversarial training with two optimizers under manual control: the generator is updated with every third batch.
Source: Lightning-AI/pytorch-lightning, docs/source-pytorch/common/optimization.rst, manual optimization.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 10))
        self.discriminator = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), lr=1e-3),
            torch.optim.SGD(self.discriminator.parameters(), lr=1e-2),
        )

    def training_step(self, real, index, optimizers):
        opt_g, opt_d = optimizers
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = self.generator(torch.randn(len(real), 4))
        judge = nn.functional.binary_cross_entropy_with_logits
        d_loss = judge(self.discriminator(real), ones) + judge(self.discriminator(fake.detach()), zeros)
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        self.log("d_loss", d_loss.detach())
        if (index + 1) % 3 == 0:
            g_loss = judge(self.discriminator(fake), ones)
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
            self.log("g_loss", g_loss.detach())

    def log(self, name, value):
        mean = self.logged.setdefault(name, torch.zeros(2))
        mean += torch.stack([value, torch.ones(())])


torch.manual_seed(11)
gan, left = Gan(), int(sys.argv[1])
optimizers = gan.configure_optimizers()
loader = DataLoader(TensorDataset(torch.randn(96, 10)), batch_size=8, shuffle=True)
while left > 0:
    gan.logged = {}
    for index, (real,) in enumerate(loader):
        if left == 0:
            break
        gan.training_step(real, index, optimizers)
        left -= 1
    print({name: round((total / count).item(), 4) for name, (total, count) in gan.logged.items()})
