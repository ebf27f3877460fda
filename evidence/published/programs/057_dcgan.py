# needs: torch
# after https://docs.pytorch.org/tutorials/beginner/dcgan_faces_tutorial.html (batch 128, images of 64, nz 100, ngf 64, ndf 64)
import torch
import torch.nn as nn
import torch.optim as optim

nz, ngf, ndf, nc, device = 100, 64, 64, 3, "cuda"


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


def up(before, after, stride=2, padding=1):
    return [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU(True)]


def down(before, after):
    return [nn.Conv2d(before, after, 4, 2, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.2, inplace=True)]


netG = nn.Sequential(
    *up(nz, ngf * 8, 1, 0),
    *up(ngf * 8, ngf * 4),
    *up(ngf * 4, ngf * 2),
    *up(ngf * 2, ngf),
    nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
    nn.Tanh(),
).to(device)
netD = nn.Sequential(
    nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    *down(ndf, ndf * 2),
    *down(ndf * 2, ndf * 4),
    *down(ndf * 4, ndf * 8),
    nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
for i in range(3):
    netD.zero_grad()
    real = torch.randn(128, 3, 64, 64).to(device)
    label = torch.full((128,), 1.0, dtype=torch.float, device=device)
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(torch.randn(128, nz, 1, 1, device=device))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    optimizerG.step()
    print(i, (errD_real + errD_fake).item(), errG.item())
