"""A graph autoencoder of PyG: edges are predicted with negative samples, evaluated every five epochs."""

import torch
from torch_geometric.nn import GAE, GCNConv
from torch_geometric.utils import negative_sampling

torch.manual_seed(0)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(64, 64)
        self.second = GCNConv(64, 16)

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


x = torch.randn(3000, 64)  #: input
edges = torch.randint(0, 3000, (2, 12_000))  #: input
train_edges, test_edges = edges[:, :10_000].contiguous(), edges[:, 10_000:].contiguous()  #: input
model = GAE(Encoder())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scores = []
for epoch in range(40):
    model.train()
    optimizer.zero_grad()
    z = model.encode(x, train_edges)
    loss = model.recon_loss(z, train_edges)
    loss.backward()
    optimizer.step()
    if epoch % 5 == 4:
        model.eval()
        with torch.no_grad():
            z = model.encode(x, train_edges)
            negative = negative_sampling(test_edges, num_nodes=3000)
            scores.append(model.decode(z, test_edges).mean() - model.decode(z, negative).mean())
