"""Violins, sample by sample: dilated convolutions, gates, and a way past them that adds up, as WaveNet has it."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Gate(nn.Module):
    def __init__(self, width, past, dilation):
        super().__init__()
        self.filter = nn.Conv1d(width, width, 2, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 2, dilation=dilation)
        self.back = nn.Conv1d(width, width, 1)
        self.past = nn.Conv1d(width, past, 1)
        self.pad = dilation

    def forward(self, x):
        y = F.pad(x, (self.pad, 0))
        y = torch.tanh(self.filter(y)) * torch.sigmoid(self.gate(y))
        return x + self.back(y), self.past(y)


class Wave(nn.Module):
    def __init__(self, levels=256, width=24, past=256, depth=10):
        super().__init__()
        self.start = nn.Embedding(levels, width)
        self.gates = nn.ModuleList(Gate(width, past, 2 ** (i % 10)) for i in range(depth))
        self.end = nn.Conv1d(past, levels, 1)

    def forward(self, samples):
        x = self.start(samples).transpose(1, 2)
        pasts = []
        for gate in self.gates:
            x, past = gate(x)
            pasts.append(past)
        total = torch.stack(pasts).sum(dim=0)
        return self.end(F.relu(total))


def main():
    wave = Wave().cuda()
    optimizer = torch.optim.Adam(wave.parameters(), lr=1e-3)
    for step in range(3):
        samples = torch.randint(0, 256, (4, 4001)).cuda()
        scores = wave(samples[:, :-1])
        loss = F.cross_entropy(scores, samples[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
