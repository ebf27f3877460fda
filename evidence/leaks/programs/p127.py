"""Instance discrimination as a script: keys join a queue, and each query is compared with all of it.
Source: facebookresearch/moco, moco/builder.py, written down as a loop, with a queue that is concatenated.
"""

import sys

import torch
from torch import nn

torch.manual_seed(34)
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 96))
slow = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 96)).requires_grad_(False)
slow.load_state_dict(encoder.state_dict())
opt = torch.optim.SGD(encoder.parameters(), lr=0.05)
queue = nn.functional.normalize(torch.randn(16, 96), dim=1)
for step in range(int(sys.argv[1])):
    x = torch.randn(4, 32)
    q = nn.functional.normalize(encoder(x + 0.1 * torch.randn(4, 32)), dim=1)
    with torch.no_grad():
        k = nn.functional.normalize(slow(x + 0.1 * torch.randn(4, 32)), dim=1)
    similarity = nn.functional.cosine_similarity(q[:, None], queue[None], dim=2)
    logits = torch.cat([(q * k).sum(dim=1, keepdim=True), similarity], dim=1) / 0.1
    loss = nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, s in zip(encoder.parameters(), slow.parameters(), strict=True):
            s.lerp_(p, 0.01)
    queue = torch.cat([queue, k])  # LEAK
    if step % 12 == 0:
        print(step, loss.item(), (logits.argmax(dim=1) == 0).float().mean().item())
