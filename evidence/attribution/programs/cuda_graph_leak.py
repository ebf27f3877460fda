"""Loss values are kept on the GPU with their graph."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []
for step in range(60):
    x = torch.randn(512, 256, device="cuda")  #: input
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
