"""Normalized edges are cached per graph, but each batch is a graph of its own: the cache keeps them all."""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

torch.manual_seed(0)
cache = {}


def normalized(graph):
    if id(graph) not in cache:  # the graph is kept with it, so that its id is not used again
        cache[id(graph)] = graph, gcn_norm(graph.edge_index, num_nodes=graph.num_nodes)  #: kept
    return cache[id(graph)][1]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(128, 64, normalize=False), GCNConv(64, 5, normalize=False)

    def forward(self, graph):
        edges, weights = normalized(graph)
        return self.second(self.first(graph.x, edges, weights).relu(), edges, weights)


whole = Data(
    x=torch.randn(3000, 128),  #: input
    edge_index=torch.randint(0, 3000, (2, 40000)),  #: input
    y=torch.randint(0, 5, (3000,)),  #: input
)
network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
for step in range(60):
    nodes = torch.randperm(3000)[:600]
    graph = whole.subgraph(nodes)  #: input
    loss = nn.functional.cross_entropy(network(graph), graph.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
