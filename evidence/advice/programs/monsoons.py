"""When will the rain come? Stations along a coast hand their last weeks to a recurrent net, which draws the next days."""

import numpy as np
import torch
import torch.nn as nn

STATIONS, HOURS, FEATURES = 1200, 1400, 12
PAST, AHEAD = 168, 24


def make_series(seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(HOURS)
    phase = rng.uniform(0, 6.28, (STATIONS, 1, FEATURES))
    return (np.sin(2 * np.pi * t / 24)[None, :, None] + phase) * 0.5


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, hidden, num_layers=2, batch_first=True, dropout=0.1)

    def forward(self, x):
        _, (h, c) = self.lstm(x)
        return h, c


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, hidden, num_layers=2, batch_first=True)
        self.proj = nn.Linear(hidden, FEATURES)

    def forward(self, last, state):
        steps = []
        for _ in range(AHEAD):
            out, state = self.lstm(last, state)
            last = self.proj(out)
            steps.append(last)
        return torch.cat(steps, dim=1)


class Forecaster(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.enc, self.dec = Encoder(hidden), Decoder(hidden)

    def forward(self, past):
        return self.dec(past[:, -1:], self.enc(past))


def window(series, start):
    past = series[:, start : start + PAST]
    ahead = series[:, start + PAST : start + PAST + AHEAD]
    return past.float(), ahead.float()


def fit(model, series, steps=4):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for i in range(steps):
        past, ahead = window(series, 100 * i)
        loss = nn.functional.l1_loss(model(past), ahead)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(i, loss.item())


def backtest(model, series):
    model.eval()
    drawn, seen = [], []
    with torch.no_grad():
        for start in range(500, 1100, 50):
            past, ahead = window(series, start)
            drawn.append(model(past))
            seen.append(ahead)
    drawn, seen = torch.stack(drawn), torch.stack(seen)
    print("mae", (drawn - seen).abs().mean().item())


def main():
    series = torch.as_tensor(make_series()).to("cuda")
    model = Forecaster().to("cuda")
    fit(model, series)
    backtest(model, series)


main()
