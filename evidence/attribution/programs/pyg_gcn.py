"""A graph network on one graph, evaluated each epoch."""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
hidden = int(sys.argv[1]) if len(sys.argv) > 1 else 128
nodes, edges = 3000, 12000
graph = Data(
    x=torch.rand(nodes, 256),  #: input
    edge_index=torch.randint(0, nodes, (2, edges)),  #: input
    y=torch.randint(0, 7, (nodes,)),  #: input
)


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(256, hidden)
        self.conv2 = GCNConv(hidden, 7)

    def forward(self, data):
        x = F.relu(self.conv1(data.x, data.edge_index))
        x = F.dropout(x, training=self.training)
        return self.conv2(x, data.edge_index)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(12):
    model.train()
    loss = F.cross_entropy(model(graph), graph.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(graph).argmax(1) == graph.y).float().mean().item()
