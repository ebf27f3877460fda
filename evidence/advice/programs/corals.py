"""Branches of corals as graphs: GIN of torch_geometric over many small ones at once, each pooled to one vector."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GINConv, global_add_pool

GRAPHS, NODES, WIDTH = 400, 60, 128


class Branches(nn.Module):
    def __init__(self, layers=5):
        super().__init__()
        self.first = nn.Linear(16, WIDTH)
        self.convs = nn.ModuleList(
            GINConv(
                nn.Sequential(
                    nn.Linear(WIDTH, 2 * WIDTH), nn.BatchNorm1d(2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)
                )
            )
            for _ in range(layers)
        )
        self.last = nn.Linear(WIDTH * (layers + 1), 10)

    def forward(self, x, edges, graph):
        x = self.first(x)
        seen = [global_add_pool(x, graph, size=GRAPHS)]
        for conv in self.convs:
            x = F.relu(conv(x, edges))
            seen.append(global_add_pool(x, graph, size=GRAPHS))
        return self.last(torch.cat(seen, dim=1))


def batch():
    x = torch.randn(GRAPHS * NODES, 16)
    edges = torch.randint(0, NODES, (2, GRAPHS, 120)) + torch.arange(GRAPHS)[None, :, None] * NODES
    graph = torch.arange(GRAPHS).repeat_interleave(NODES)
    return x.cuda(), edges.flatten(1).cuda(), graph.cuda(), torch.randint(0, 10, (GRAPHS,)).cuda()


model = Branches().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    x, edges, graph, kinds = batch()
    scores = model(x, edges, graph)
    loss = F.cross_entropy(scores, kinds)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
