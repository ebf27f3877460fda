"""Attention over batches of small graphs."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, global_mean_pool

torch.manual_seed(0)
graphs = [
    Data(x=torch.rand(60, 64), edge_index=torch.randint(0, 60, (2, 240)), y=torch.randint(0, 3, (1,)))  #: input
    for _ in range(128)
]
loader = DataLoader(graphs, batch_size=16, shuffle=True)


class GAT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(64, 32, heads=4)
        self.conv2 = GATConv(128, 64)
        self.head = torch.nn.Linear(64, 3)

    def forward(self, data):
        x = F.elu(self.conv1(data.x, data.edge_index))
        x = F.elu(self.conv2(x, data.edge_index))
        return self.head(global_mean_pool(x, data.batch))


model = GAT()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    for batch in loader:  #: input
        loss = F.cross_entropy(model(batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
