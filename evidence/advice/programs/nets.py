"""Fishing nets as graphs: which knots will tear together, by GCN layers of torch_geometric and a look at all pairs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv

KNOTS = 480


def net_of_knots():
    ends = torch.randint(0, KNOTS, (2, 4 * KNOTS))
    return Data(x=torch.rand(KNOTS, 16), edge_index=ends, y=(torch.rand(KNOTS, KNOTS) < 0.01).float())


class Knots(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(16, width), GCNConv(width, width), GCNConv(width, width)])
        self.pair = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, data):
        x = data.x
        for conv in self.convs:
            x = conv(x, data.edge_index).relu()
        one = x.unsqueeze(1).repeat(1, len(x), 1)
        other = x.unsqueeze(0).repeat(len(x), 1, 1)
        return self.pair(torch.cat([one, other], dim=2)).squeeze(2)


def main():
    knots = Knots().cuda()
    optimizer = torch.optim.Adam(knots.parameters(), lr=1e-2)
    for epoch in range(2):
        for data in DataLoader([net_of_knots() for _ in range(3)], batch_size=1):
            data = data.cuda()
            loss = F.binary_cross_entropy_with_logits(knots(data), data.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
