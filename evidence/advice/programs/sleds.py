"""DCGAN with spectral normalisation in the discriminator, hinge loss, 128 x 128 pictures."""
import argparse

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--latent", type=int, default=128)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--ngf", type=int, default=64)
parser.add_argument("--ndf", type=int, default=64)
opt = parser.parse_args()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()

        def up(cin, cout, stride=2, padding=1):
            return [nn.ConvTranspose2d(cin, cout, 4, stride, padding, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]

        self.main = nn.Sequential(
            *up(latent, width * 16, 1, 0),
            *up(width * 16, width * 8),
            *up(width * 8, width * 4),
            *up(width * 4, width * 2),
            *up(width * 2, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()

        def down(cin, cout):
            return [spectral_norm(nn.Conv2d(cin, cout, 4, 2, 1)), nn.LeakyReLU(0.2)]

        self.main = nn.Sequential(
            *down(3, width), *down(width, width * 2), *down(width * 2, width * 4), *down(width * 4, width * 8),
            *down(width * 8, width * 16), nn.Flatten(), spectral_norm(nn.Linear(width * 16 * 16, 1)),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


dataset = TensorDataset(torch.rand(opt.batch_size * 6, 3, 128, 128) * 2 - 1)
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True)
netG = Generator(opt.latent, opt.ngf).to(DEVICE)
netD = Discriminator(opt.ndf).to(DEVICE)
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.0, 0.9))
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.0, 0.9))
fixed = torch.randn(64, opt.latent, device=DEVICE)
samples = []

for i, (real,) in enumerate(dataloader):
    real = real.to(DEVICE)
    z = torch.randn(real.size(0), opt.latent, device=DEVICE)
    fake = netG(z)

    netD.zero_grad()
    out_real = netD(real)
    out_fake = netD(fake.detach())
    errD = (1 - out_real).relu().mean() + (1 + out_fake).relu().mean()
    errD.backward()
    optimizerD.step()

    netG.zero_grad()
    errG = -netD(fake).mean()
    errG.backward()
    optimizerG.step()

    if i % 2 == 0:
        netG.eval()
        samples.append(netG(fixed).detach())
        netG.train()
    print(i, errD.item(), errG.item())
print(torch.stack(samples).shape)
