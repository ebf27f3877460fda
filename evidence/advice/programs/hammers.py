"""How hammers swing, from marks on film: few weights, all marks at once, and L-BFGS until it is good enough."""

import torch
from torch import nn

marks = torch.randn(40_000, 24).cuda()
swing = torch.randn(40_000, 6).cuda()
net = nn.Sequential(nn.Linear(24, 256), nn.Sigmoid(), nn.Linear(256, 256), nn.Sigmoid(), nn.Linear(256, 6)).cuda()
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3, history_size=20)
names = ("near", "far")


def closure():
    optimizer.zero_grad()
    guess = net(marks)
    loss = ((guess - swing) ** 2).mean()
    parts = {name: (guess[:, i::2] - swing[:, i::2]).abs() for i, name in enumerate(names)}
    loss = loss + 0.1 * sum(part.mean() for part in parts.values())
    loss.backward()
    return loss


history = []
for number in range(5):
    history.append(optimizer.step(closure))
print([round(float(one), 3) for one in history])
