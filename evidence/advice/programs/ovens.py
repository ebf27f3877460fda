"""What an oven needs next: eight experts, each a net of its own, and a gate that weighs what they say."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Experts(nn.Module):
    def __init__(self, width=256, count=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(Expert(width) for _ in range(count))

    def forward(self, x):
        y = self.norm(x)
        weights = self.gate(y).softmax(dim=-1)
        said = [expert(y) for expert in self.experts]
        said = torch.stack(said, dim=-1)
        return x + (said * weights.unsqueeze(-2)).sum(dim=-1)


class Oven(nn.Module):
    def __init__(self, width=256, depth=3):
        super().__init__()
        self.start = nn.Linear(12, width)
        self.layers = nn.ModuleList(Experts(width) for _ in range(depth))
        self.end = nn.Linear(width, 1)

    def forward(self, x):
        x = self.start(x)
        for layer in self.layers:
            x = layer(x)
        return self.end(x)


def main():
    oven = Oven().cuda()
    optimizer = torch.optim.AdamW(oven.parameters(), lr=3e-4)
    for step in range(4):
        seen = torch.rand(16, 129, 12).cuda()
        guess = oven(seen[:, :-1])
        loss = F.mse_loss(guess, seen[:, 1:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
