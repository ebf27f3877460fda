"""A whistler practises: from the picture of a tune one net whistles it back, and a second net listens for false notes."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

SLOPE = 0.1
FRAMES, HOP, MELS = 32, 256, 80


class ResBlock(nn.Module):
    def __init__(self, channels, kernel, dilations=(1, 3, 5)):
        super().__init__()
        self.wide = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2)) for d in dilations
        )
        self.narrow = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel, padding=(kernel - 1) // 2)) for _ in dilations
        )

    def forward(self, x):
        for wide, narrow in zip(self.wide, self.narrow):
            y = wide(F.leaky_relu(x, SLOPE))
            x = x + narrow(F.leaky_relu(y, SLOPE))
        return x


class Whistler(nn.Module):
    def __init__(self, channels=192):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(MELS, channels, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate in (8, 8, 4):
            self.ups.append(weight_norm(nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, rate // 2)))
            channels //= 2
            self.blocks.append(nn.ModuleList(ResBlock(channels, k) for k in (3, 7)))
        self.post = weight_norm(nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, mel):
        x = self.pre(mel)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, SLOPE))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.post(F.leaky_relu(x)))


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(1, 32, 15, 1), (32, 128, 41, 4), (128, 256, 41, 4), (256, 512, 41, 4), (512, 512, 5, 1)]
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, k, s, padding=k // 2, groups=1 if a == 1 or k == 5 else 16) for a, b, k, s in sizes
        )
        self.last = nn.Conv1d(512, 1, 3, padding=1)

    def forward(self, x):
        heard = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), SLOPE)
            heard.append(x)
        return self.last(x), heard


def spectrum(wave, size=1024):
    window = torch.hann_window(size, device=wave.device)
    return torch.stft(wave.squeeze(1), size, HOP, window=window, return_complex=True).abs().clamp_min(1e-5).log()


whistler, listener = Whistler().cuda(), Listener().cuda()
opt_w = torch.optim.AdamW(whistler.parameters(), 2e-4, betas=(0.8, 0.99))
opt_l = torch.optim.AdamW(listener.parameters(), 2e-4, betas=(0.8, 0.99))

for step in range(3):
    mel = torch.randn(16, MELS, FRAMES).cuda()
    real = torch.rand(16, 1, FRAMES * HOP).cuda() * 2 - 1
    fake = whistler(mel)

    score_real, heard_real = listener(real)
    score_fake, heard_fake = listener(fake)
    loss_l = (score_real - 1).square().mean() + score_fake.square().mean()
    opt_l.zero_grad()
    loss_l.backward(retain_graph=True)
    opt_l.step()

    score, heard = listener(fake)
    _, wanted = listener(real)
    loss_w = (score - 1).square().mean()
    loss_w = loss_w + 2 * sum(F.l1_loss(a, b.detach()) for a, b in zip(heard, wanted))
    loss_w = loss_w + 45 * F.l1_loss(spectrum(fake), spectrum(real))
    opt_w.zero_grad()
    loss_w.backward()
    opt_w.step()
    print(f"{step}: listener {loss_l.item():.3f}, whistler {loss_w.item():.3f}")
