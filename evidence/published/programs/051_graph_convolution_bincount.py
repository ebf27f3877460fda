# needs: torch
# a graph convolution in plain torch, as https://github.com/tkipf/pygcn and PyTorch Geometric's message passing do it: degrees by
# bincount, messages by index_select and index_add_; ogbn-arxiv's size (169,343 nodes, 1,166,243 edges, 128 features, 40 classes)
import torch
from torch import nn

nodes, edges = 169343, 1166243
edge_index = torch.randint(0, nodes, (2, edges), device="cuda")
x, y = torch.randn(nodes, 128, device="cuda"), torch.randint(0, 40, (nodes,), device="cuda")
train_index = torch.arange(0, nodes, 2, device="cuda")


class GCNConv(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.linear = nn.Linear(before, after)

    def forward(self, x, edge_index):
        row, col = edge_index
        degree = torch.bincount(row, minlength=x.shape[0]).float()
        norm = degree.clamp(min=1).rsqrt()
        x = self.linear(x)
        messages = x[row] * (norm[row] * norm[col])[:, None]
        return torch.zeros_like(x).index_add_(0, col, messages)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(128, 256), GCNConv(256, 256), GCNConv(256, 40)])

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = nn.functional.dropout(conv(x, edge_index).relu(), 0.5, self.training)
        return self.convs[-1](x, edge_index)


model = GCN().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    optimizer.zero_grad()
    out = model(x, edge_index)
    loss = nn.functional.cross_entropy(out[train_index], y[train_index])
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
