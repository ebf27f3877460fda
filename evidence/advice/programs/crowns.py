"""Crowns of trees from the air: a wide network weighs each of a handful."""
import torch
from torch import nn

weigh = nn.Sequential(nn.Linear(1024, 6144), nn.GELU(), nn.Linear(6144, 6144), nn.GELU(), nn.Linear(6144, 1)).cuda()
optimizer = torch.optim.AdamW(weigh.parameters(), lr=1e-4)
for walk in range(5):
    crowns, weights = torch.randn(16, 1024).cuda(), torch.rand(16, 1).cuda()
    loss = (weigh(crowns) - weights).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    print(walk, loss.item())
