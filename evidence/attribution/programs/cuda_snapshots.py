"""The last six snapshots of the weights stay on the GPU; they vote in the end."""

import collections

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
snapshots = collections.deque(maxlen=6)
for step in range(120):
    x = torch.randn(64, 512, device="cuda")  #: input
    y = torch.randint(0, 10, (64,), device="cuda")  #: input
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        snapshots.append({name: value.detach().clone() for name, value in net.state_dict().items()})  #: kept
net.eval()
votes = torch.zeros(4, 64, 10, device="cuda")
held_out = torch.randn(4, 64, 512, device="cuda")  #: input
with torch.no_grad():
    for snapshot in snapshots:
        net.load_state_dict(snapshot)
        for i in range(4):
            votes[i] += net(held_out[i]).softmax(1)
print(votes.shape)
