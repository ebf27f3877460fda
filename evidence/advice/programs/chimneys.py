"""Chimneys in winter: from the smoke of two days, how warm will the house be at night?"""
import torch
from torch import nn


class Stove(nn.Module):
    def __init__(self, width=256, depth=6, hours=192):
        super().__init__()
        self.read = nn.Linear(8, width)
        self.place = nn.Parameter(torch.zeros(1, hours, width))
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.say = nn.Linear(width, 1)

    def forward(self, smoke):
        return self.say(self.layers(self.read(smoke) + self.place)).squeeze(-1)


def winter(stove, nights=5, rows=64):
    optimizer = torch.optim.AdamW(stove.parameters(), lr=3e-4)
    slopes = []
    for night in range(nights):
        smoke, warmth = torch.randn(rows, 192, 8).cuda(), torch.randn(rows, 192).cuda()
        error = (stove(smoke) - warmth).abs().mean()
        smooth = sum(one.square().sum() for one in stove.say.parameters())
        optimizer.zero_grad()
        (error + 1e-4 * smooth).backward(retain_graph=True)
        slopes.append(stove.say.weight.grad.norm().item())
        optimizer.step()
    return error.item(), slopes


print(winter(Stove().cuda()))
