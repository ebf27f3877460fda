"""Sound events, frame by frame: log-mel spectrograms, convolutions, a GRU of both directions."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, EVENTS = 16000, 10, 25
device = "cuda" if torch.cuda.is_available() else "cpu"


class Clips(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time = torch.arange(RATE * SECONDS) / RATE
        wave = torch.sin(2 * math.pi * (200 + 10 * index) * time)
        events = torch.zeros(250, EVENTS)
        events[index % 200 : index % 200 + 40, index % EVENTS] = 1
        return wave, events


class LogMel(nn.Module):
    def __init__(self, n_fft=1024, hop=160, mels=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        top = 2595 * math.log10(1 + RATE / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
        freqs = torch.linspace(0, RATE / 2, n_fft // 2 + 1)[:, None]
        up = (freqs - edges[:-2]) / (edges[1:-1] - edges[:-2])
        down = (edges[2:] - freqs) / (edges[2:] - edges[1:-1])
        self.register_buffer("bank", torch.minimum(up, down).clamp(min=0))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spectrum.abs().square().transpose(1, 2)
        return (power @ self.bank + 1e-6).log()


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, pool):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(cout)
        self.act = nn.GELU()
        self.pool = nn.AvgPool2d(pool)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        x = self.act(self.bn2(self.conv2(x)))
        return self.drop(self.pool(x))


class CRNN(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.mel = LogMel()
        self.blocks = nn.Sequential(
            ConvBlock(1, 32, (2, 2)), ConvBlock(32, 64, (2, 2)), ConvBlock(64, 128, (1, 4)), ConvBlock(128, 256, (1, 4))
        )
        self.gru = nn.GRU(256, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, EVENTS)

    def forward(self, wave):
        x = self.mel(wave).unsqueeze(1)
        x = self.blocks(x).squeeze(-1).transpose(1, 2)
        x, _ = self.gru(x)
        return self.head(x)[:, :250]


def main():
    train = DataLoader(Clips(80), batch_size=16, shuffle=True)
    valid = DataLoader(Clips(48), batch_size=16)
    model = CRNN().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()

    model.train()
    for step, (wave, events) in enumerate(train):
        wave, events = wave.to(device), events.to(device)
        logits = model(wave)
        loss = criterion(logits, events)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())

    model.eval()
    probabilities, truth = [], []
    with torch.no_grad():
        for wave, events in valid:
            probabilities.append(model(wave.to(device)).sigmoid())
            truth.append(events.to(device))
    probabilities, truth = torch.cat(probabilities), torch.cat(truth)
    hits = ((probabilities > 0.5) * truth).sum()
    print("f1", (2 * hits / ((probabilities > 0.5).sum() + truth.sum())).item())


if __name__ == "__main__":
    main()
