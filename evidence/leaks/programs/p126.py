"""Contrastive learning against all keys seen so far; the queue is a buffer of the model.
Source: facebookresearch/moco, moco/builder.py, with a queue that is concatenated instead of overwritten.
"""

import copy
import sys

import torch
from torch import nn


class Moco(nn.Module):
    def __init__(self, dim=64, momentum=0.99):
        super().__init__()
        self.momentum = momentum
        self.encoder_q = nn.Sequential(nn.Linear(30, 48), nn.ReLU(), nn.Linear(48, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(dim, 8), dim=0))

    @torch.no_grad()
    def update_keys(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.mul_(self.momentum).add_(q, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue = torch.cat([self.queue, keys.t()], dim=1)  # LEAK

    def forward(self, view_q, view_k):
        q = nn.functional.normalize(self.encoder_q(view_q), dim=1)
        with torch.no_grad():
            self.update_keys()
            k = nn.functional.normalize(self.encoder_k(view_k), dim=1)
        return q, k


def contrast(q, k, queue, temperature=0.07):
    positive = (q * k).sum(dim=1, keepdim=True)
    negative = nn.functional.cosine_similarity(q[:, :, None], queue[None], dim=1)
    logits = torch.cat([positive, negative], dim=1) / temperature
    return nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


torch.manual_seed(33)
model = Moco()
opt = torch.optim.SGD(model.encoder_q.parameters(), lr=0.03, momentum=0.9)
for step in range(int(sys.argv[1])):
    x = torch.randn(6, 30)
    q, k = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    loss = contrast(q, k, model.queue)
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.enqueue(k)
print(loss.item(), tuple(model.queue.shape))
