"""Node embeddings of each epoch are stored to draw how they move."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

torch.manual_seed(0)
x = torch.rand(1500, 100)  #: input
edge_index = torch.randint(0, 1500, (2, 6000))  #: input
y = torch.randint(0, 5, (1500,))  #: input


class SAGE(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = SAGEConv(100, 64)
        self.conv2 = SAGEConv(64, 5)
        self.frames = []

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index).relu()
        self.frames.append(h.detach().clone())  #: kept
        return self.conv2(h, edge_index)


model = SAGE()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(40):
    loss = F.cross_entropy(model(x, edge_index), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
