"""WGAN with gradient penalty, convolutional generator and critic, images of 64 x 64."""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"

Z_DIM = 128
CHANNELS = 3
FEATURES = 64
BATCH_SIZE = 128
CRITIC_ITERATIONS = 3
LAMBDA_GP = 10


class Critic(nn.Module):
    def __init__(self, channels, features):
        super().__init__()
        self.disc = nn.Sequential(
            nn.Conv2d(channels, features, kernel_size=4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            self._block(features, features * 2),
            self._block(features * 2, features * 4),
            self._block(features * 4, features * 8),
            nn.Conv2d(features * 8, 1, kernel_size=4, stride=2, padding=0),
        )

    def _block(self, cin, cout):
        return nn.Sequential(
            nn.Conv2d(cin, cout, 4, 2, 1, bias=False),
            nn.InstanceNorm2d(cout, affine=True),
            nn.LeakyReLU(0.2),
        )

    def forward(self, x):
        return self.disc(x)


class Generator(nn.Module):
    def __init__(self, z_dim, channels, features):
        super().__init__()
        self.net = nn.Sequential(
            self._block(z_dim, features * 16, 4, 1, 0),
            self._block(features * 16, features * 8, 4, 2, 1),
            self._block(features * 8, features * 4, 4, 2, 1),
            self._block(features * 4, features * 2, 4, 2, 1),
            nn.ConvTranspose2d(features * 2, channels, 4, 2, 1),
            nn.Tanh(),
        )

    def _block(self, cin, cout, kernel, stride, padding):
        return nn.Sequential(
            nn.ConvTranspose2d(cin, cout, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.net(x)


def initialize_weights(model):
    for m in model.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d)):
            nn.init.normal_(m.weight.data, 0.0, 0.02)


def gradient_penalty(critic, real, fake):
    b, c, h, w = real.shape
    alpha = torch.rand((b, 1, 1, 1), device=device).repeat(1, c, h, w)
    interpolated = real * alpha + fake * (1 - alpha)
    interpolated.requires_grad_(True)
    scores = critic(interpolated)
    gradient = torch.autograd.grad(
        inputs=interpolated,
        outputs=scores,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
        retain_graph=True,
    )[0]
    norm = gradient.view(b, -1).norm(2, dim=1)
    return torch.mean((norm - 1) ** 2)


dataset = TensorDataset(torch.rand(5 * BATCH_SIZE, CHANNELS, 64, 64) * 2 - 1)
loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)

gen = Generator(Z_DIM, CHANNELS, FEATURES).to(device)
critic = Critic(CHANNELS, FEATURES).to(device)
initialize_weights(gen)
initialize_weights(critic)
opt_gen = optim.Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_critic = optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))

fixed_noise = torch.randn(64, Z_DIM, 1, 1, device=device)
grids = []
gen.train()
critic.train()

for batch_idx, (real,) in enumerate(loader):
    real = real.to(device)

    for _ in range(CRITIC_ITERATIONS):
        noise = torch.randn(BATCH_SIZE, Z_DIM, 1, 1, device=device)
        fake = gen(noise).detach()
        critic_real = critic(real).reshape(-1)
        critic_fake = critic(fake).reshape(-1)
        gp = gradient_penalty(critic, real, fake)
        loss_critic = critic_fake.mean() - critic_real.mean() + LAMBDA_GP * gp
        critic.zero_grad()
        loss_critic.backward()
        opt_critic.step()

    noise = torch.randn(BATCH_SIZE, Z_DIM, 1, 1, device=device)
    output = critic(gen(noise)).reshape(-1)
    loss_gen = -torch.mean(output)
    gen.zero_grad()
    loss_gen.backward()
    opt_gen.step()

    grids.append(gen(fixed_noise))
    print(f"{batch_idx}/{len(loader)}  critic {loss_critic.item():.4f}  gen {loss_gen.item():.4f}")

print(torch.stack(grids).shape)
