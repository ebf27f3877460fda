"""Super-resolution by 4: residual blocks and pixel shuffles, an L1 loss and one on features of VGG."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import vgg16

SCALE = 4
CROP = 160
BATCH = 12
STEPS = 5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Crops(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        high = torch.rand(3, CROP, CROP)
        low = nn.functional.avg_pool2d(high, SCALE)
        return low, high


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.PReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return x + self.body(x)


class Upsample(nn.Sequential):
    def __init__(self, channels):
        super().__init__(
            nn.Conv2d(channels, channels * 4, 3, padding=1),
            nn.PixelShuffle(2),
            nn.LeakyReLU(0.1),
        )


class Generator(nn.Module):
    def __init__(self, channels=64, blocks=16):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, channels, 9, padding=4), nn.PReLU())
        self.blocks = nn.ModuleList(ResidualBlock(channels) for _ in range(blocks))
        self.merge = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))
        self.up = nn.Sequential(Upsample(channels), Upsample(channels))
        self.tail = nn.Conv2d(channels, 3, 9, padding=4)

    def forward(self, low):
        first = self.head(low)
        x = first
        for block in self.blocks:
            x = block(x)
        x = self.up(first + self.merge(x))
        return torch.sigmoid(self.tail(x))


class PerceptualLoss(nn.Module):
    def __init__(self, layers=23):
        super().__init__()
        self.features = vgg16(weights=None).features[:layers].eval()
        self.l1 = nn.L1Loss()

    def forward(self, fake, real):
        fake_features = self.features(fake)
        real_features = self.features(real)
        return self.l1(fake_features, real_features)


def psnr(fake, real):
    return 10 * torch.log10(1 / nn.functional.mse_loss(fake, real))


generator = Generator().to(DEVICE)
perceptual = PerceptualLoss().to(DEVICE)
pixel = nn.L1Loss()
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.9, 0.99))
loader = DataLoader(Crops(BATCH * STEPS), batch_size=BATCH, shuffle=True)

history = []
for step, (low, high) in enumerate(loader):
    low, high = low.to(DEVICE), high.to(DEVICE)
    fake = generator(low)
    loss = pixel(fake, high) + 0.1 * perceptual(fake, high)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append((loss.item(), psnr(fake, high)))
    print(step, history[-1][0])
print("mean psnr", sum(value for _, value in history) / len(history))
