"""Graph classification with normalised adjacency matrices, which are worked out once per graph object."""

import sys

import torch
from torch import nn


class Graph:
    def __init__(self, nodes, edges):
        self.x = torch.randn(nodes, 12)  # LEAK
        self.edges = torch.randint(0, nodes, (2, edges))  # LEAK
        self.label = torch.randint(0, 2, (1,))  # LEAK


_adjacency = {}


def adjacency(graph):
    entry = _adjacency.get(id(graph))
    if entry is None or entry[0] is not graph:
        n = len(graph.x)
        a = torch.eye(n)
        a[graph.edges[0], graph.edges[1]] = 1.0
        scaled = a / a.sum(dim=1, keepdim=True)  # LEAK
        entry = _adjacency[id(graph)] = (graph, scaled)
    return entry[1]


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(12, 32)
        self.two = nn.Linear(32, 32)
        self.out = nn.Linear(32, 2)

    def forward(self, graph):
        h = torch.relu(adjacency(graph) @ self.one(graph.x))
        h = torch.relu(adjacency(graph) @ self.two(h))
        return self.out(h.mean(dim=0, keepdim=True))


torch.manual_seed(72)
net = GCN()
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    for _ in range(3):
        graph = Graph(30, 90)
        loss = nn.functional.cross_entropy(net(graph), graph.label) / 3
        loss.backward()
    optimizer.step()
print("last loss", loss.item() * 3)
