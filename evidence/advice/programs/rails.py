"""Stations of a railway by their use: GraphSAGE of PyTorch Geometric over the whole map, tested behind each round."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = SAGEConv(64, 128)
        self.second = SAGEConv(128, 128)
        self.third = SAGEConv(128, 12)

    def forward(self, x, edges):
        x = F.dropout(self.first(x, edges).relu(), 0.5, self.training)
        x = F.dropout(self.second(x, edges).relu(), 0.5, self.training)
        return self.third(x, edges)


stations, tracks = 20_000, 120_000
x = torch.rand(stations, 64).cuda()
edges = torch.randint(0, stations, (2, tracks)).cuda()
use = torch.randint(0, 12, (stations,)).cuda()
known = stations // 2

net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(5):
    net.train()
    optimizer.zero_grad()
    out = net(x, edges)
    loss = F.cross_entropy(out[:known], use[:known])
    loss.backward()
    optimizer.step()

    net.eval()
    out = net(x, edges)
    right = (out[known:].argmax(1) == use[known:]).float().mean()
    print(f"{epoch} {right.item():.2f}")
