"""WaveNet on 8-bit mu-law speech: each sample guessed from those before it."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--segment", type=int, default=8192)
    parser.add_argument("--channels", type=int, default=96)
    parser.add_argument("--skip-channels", type=int, default=256)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--stacks", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


args = get_args()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
QUANT = 256


class Speech(Dataset):
    """Clips as mu-law codes."""

    def __init__(self, clips=48):
        t = torch.arange(args.segment + 1) / 16000
        pitch = torch.rand(clips, 1) * 300 + 80
        wave = torch.sin(2 * torch.pi * pitch * t) * torch.rand(clips, 1)
        self.codes = self.encode(wave)

    @staticmethod
    def encode(wave, mu=QUANT - 1):
        magnitude = torch.log1p(mu * wave.abs()) / torch.log1p(torch.tensor(float(mu)))
        return ((wave.sign() * magnitude + 1) / 2 * mu + 0.5).long()

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, i):
        return self.codes[i, :-1], self.codes[i, 1:]


class CausalConv1d(nn.Conv1d):
    def __init__(self, cin, cout, kernel_size, dilation=1):
        super().__init__(cin, cout, kernel_size, dilation=dilation)
        self.left = (kernel_size - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class ResidualBlock(nn.Module):
    def __init__(self, channels, skip_channels, dilation):
        super().__init__()
        self.filter = CausalConv1d(channels, channels, 2, dilation)
        self.gate = CausalConv1d(channels, channels, 2, dilation)
        self.res = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skip_channels, 1)

    def forward(self, x):
        z = torch.tanh(self.filter(x)) * torch.sigmoid(self.gate(x))
        return x + self.res(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, channels, skip_channels, layers, stacks):
        super().__init__()
        self.causal = CausalConv1d(QUANT, channels, 2)
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, skip_channels, 2**i) for _ in range(stacks) for i in range(layers)
        )
        self.end1 = nn.Conv1d(skip_channels, skip_channels, 1)
        self.end2 = nn.Conv1d(skip_channels, QUANT, 1)

    def forward(self, codes):
        x = F.one_hot(codes, QUANT).float().transpose(1, 2)
        x = self.causal(x)
        skips = []
        for block in self.blocks:
            x, s = block(x)
            skips.append(s)
        out = sum(skips)
        out = F.relu(out)
        out = F.relu(self.end1(out))
        return self.end2(out)


def main():
    loader = DataLoader(Speech(), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = WaveNet(args.channels, args.skip_channels, args.layers, args.stacks).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    total = 0.0
    for step, (codes, nxt) in enumerate(loader):
        codes, nxt = codes.to(DEVICE), nxt.to(DEVICE)
        optimizer.zero_grad()
        logits = model(codes)
        loss = F.cross_entropy(logits, nxt)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
        print(f"step {step}: {total / (step + 1):.4f}")


if __name__ == "__main__":
    main()
