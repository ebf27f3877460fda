"""Inference with attention written out on the GPU, softmax in place: the scores are the peak."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
length = int(sys.argv[1]) if len(sys.argv) > 1 else 384


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhid,bhjd->bhij", q * q.shape[-1] ** -0.5, k)
        scores -= scores.amax(-1, keepdim=True)
        scores.exp_()
        scores /= scores.sum(-1, keepdim=True)
        return x + self.out((scores @ v).transpose(1, 2).flatten(2))


encoder = nn.Sequential(*(Attention(256, 8) for _ in range(3))).cuda().eval()
with torch.no_grad():
    for batch in range(10):
        x = torch.randn(16, length, 256, device="cuda")  #: input
        pooled = encoder(x).mean(1)
