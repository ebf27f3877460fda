"""A graph trained part by part: what the first layer made of each part is remembered for the others, once per part."""

import torch
from torch import nn
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
parts, nodes, dim = 8, 512, 512
features = torch.randn(parts, nodes, 64)  #: input
edges = torch.randint(0, nodes, (parts, 2, 3000))  #: input
labels = torch.randint(0, 12, (parts, nodes))  #: input


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(64, dim), GCNConv(dim, 12)
        self.history = {}

    def forward(self, part):
        h = self.first(features[part], edges[part]).relu()
        self.history[part] = h.detach().clone()  #: kept
        far = torch.stack([other.mean(0) for other in self.history.values()]).mean(0)
        return self.second(h + far, edges[part])


network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for epoch in range(8):
    for part in range(parts):
        loss = nn.functional.cross_entropy(network(part), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
