"""Graph attention on one large graph, all nodes at once: papers by their citations, with splits by year."""
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, EDGES, FEATURES, CLASSES = 24000, 300000, 128, 40
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_graph():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, FEATURES, generator=generator)
    y = torch.randint(0, CLASSES, (NODES,), generator=generator)
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=generator)
    edge_index = torch.cat([edge_index, edge_index.flip(0), torch.arange(NODES).expand(2, -1)], dim=1)
    order = torch.randperm(NODES, generator=generator)
    split = {"train": order[:13000], "valid": order[13000:18000], "test": order[18000:]}
    return x, y, edge_index, split


class GATConv(nn.Module):
    def __init__(self, cin, cout, heads):
        super().__init__()
        self.heads, self.cout = heads, cout
        self.lin = nn.Linear(cin, heads * cout, bias=False)
        self.res = nn.Linear(cin, heads * cout)
        self.att_src = nn.Parameter(torch.empty(1, heads, cout))
        self.att_dst = nn.Parameter(torch.empty(1, heads, cout))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x).view(-1, self.heads, self.cout)
        a_src = (h * self.att_src).sum(-1)
        a_dst = (h * self.att_dst).sum(-1)
        alpha = F.leaky_relu(a_src[src] + a_dst[dst], 0.2)
        alpha = (alpha - alpha.max()).exp()
        total = alpha.new_zeros(x.shape[0], self.heads).index_add_(0, dst, alpha)
        alpha = alpha / (total[dst] + 1e-16)
        messages = h[src] * alpha.unsqueeze(-1)
        out = messages.new_zeros(h.shape).index_add_(0, dst, messages)
        return out.flatten(1) + self.res(x)


class GAT(nn.Module):
    def __init__(self, hidden=64, heads=4, depth=3, dropout=0.5):
        super().__init__()
        widths = [FEATURES, *[hidden * heads] * depth]
        self.convs = nn.ModuleList([GATConv(w, hidden, heads) for w in widths[:-1]])
        self.norms = nn.ModuleList([nn.BatchNorm1d(hidden * heads) for _ in range(depth)])
        self.out = nn.Linear(hidden * heads, CLASSES)
        self.dropout = dropout

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = F.elu(norm(conv(x, edge_index)))
            x = F.dropout(x, self.dropout, self.training)
        return self.out(x)


def train(model, x, edge_index, y, train_idx, optimizer):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index)[train_idx]
    loss = F.cross_entropy(out, y[train_idx])
    loss.backward()
    optimizer.step()
    return loss.item()


def test(model, x, edge_index, y, split):
    model.eval()
    pred = model(x, edge_index).argmax(dim=-1)
    return {name: (pred[idx] == y[idx]).float().mean().item() for name, idx in split.items()}


def main():
    x, y, edge_index, split = load_graph()
    x, y, edge_index = x.to(DEVICE), y.to(DEVICE), edge_index.to(DEVICE)
    split = {name: idx.to(DEVICE) for name, idx in split.items()}
    model = GAT().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=5e-4)
    for epoch in range(1, 6):
        loss = train(model, x, edge_index, y, split["train"], optimizer)
        print(epoch, loss, test(model, x, edge_index, y, split))


if __name__ == "__main__":
    main()
