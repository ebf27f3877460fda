"""Lakes by depth: a vision transformer of torchvision, learned elsewhere, gets a new head, and only the head learns."""

import torch
import torchvision
from torch import nn

trunk = torchvision.models.VisionTransformer(160, 16, 6, 6, 192, 768)
trunk.heads = nn.Identity()
head = nn.Linear(192, 5)
trunk.cuda()
head.cuda()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
for _ in range(4):
    lakes = torch.rand(24, 3, 160, 160).cuda()
    depths = torch.randint(0, 5, (24,)).cuda()
    features = trunk(lakes)
    loss = nn.functional.cross_entropy(head(features), depths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
