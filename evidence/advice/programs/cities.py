"""Cities by their roads: a graph attention net of torch_geometric, two heads deep."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv

cities, roads = 12000, 60000


class Roads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GATConv(64, 32, heads=4, add_self_loops=False)
        self.rest = torch.nn.ModuleList(GATConv(128, 32, heads=4, add_self_loops=False) for _ in range(4))
        self.last = GATConv(128, 10, heads=1, add_self_loops=False)

    def forward(self, x, edges):
        x = F.elu(self.first(x, edges))
        for conv in self.rest:
            x = F.elu(conv(x, edges))
        return self.last(x, edges)


net = Roads().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
x = torch.rand(cities, 64, device="cuda")
edges = torch.randint(0, cities, (2, roads), device="cuda")
kind = torch.randint(0, 10, (cities,), device="cuda")
for _ in range(4):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x, edges), kind)
    loss.backward()
    optimizer.step()
