"""A frozen network makes features under no_grad, a head is trained on them."""

import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU())
for p in backbone.parameters():
    p.requires_grad = False
head = nn.Linear(1024, 20)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
for step in range(15):
    x = torch.randn(512, 256)  #: input
    y = torch.randint(0, 20, (512,))  #: input
    with torch.no_grad():
        features = backbone(x)
    loss = nn.functional.cross_entropy(head(features), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
