"""Small molecules wobble; a net on their atoms guesses the energy and, from its slope, the pull on every atom."""

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_add_pool


def molecule(atoms=24):
    pairs = torch.combinations(torch.arange(atoms))
    edges = torch.cat([pairs, pairs.flip(1)]).t().contiguous()
    return Data(
        z=torch.randint(1, 10, (atoms,)),
        pos=torch.rand(atoms, 3) * 6,
        edge_index=edges,
        energy=torch.rand(1),
        force=torch.rand(atoms, 3),
    )


class Smearing(nn.Module):
    def __init__(self, start=0.0, stop=8.0, count=48):
        super().__init__()
        self.register_buffer("centers", torch.from_numpy(np.linspace(start, stop, count)))
        self.width = (stop - start) / count

    def forward(self, d):
        return torch.exp(-0.5 * ((d[:, None] - self.centers) / self.width) ** 2)


class Interaction(MessagePassing):
    def __init__(self, dim, filters):
        super().__init__(aggr="add")
        self.filter = nn.Sequential(nn.Linear(filters, dim), nn.Softplus(), nn.Linear(dim, dim))
        self.before = nn.Linear(dim, dim, bias=False)
        self.after = nn.Sequential(nn.Linear(dim, dim), nn.Softplus(), nn.Linear(dim, dim))

    def forward(self, x, edge_index, smeared):
        return x + self.after(self.propagate(edge_index, x=self.before(x), w=self.filter(smeared)))

    def message(self, x_j, w):
        return x_j * w


class Net(nn.Module):
    def __init__(self, dim=64, layers=3):
        super().__init__()
        self.atoms = nn.Embedding(20, dim)
        self.smear = Smearing()
        self.interactions = nn.ModuleList([Interaction(dim, 48) for _ in range(layers)])
        self.out = nn.Sequential(nn.Linear(dim, dim // 2), nn.Softplus(), nn.Linear(dim // 2, 1))

    def forward(self, data):
        row, col = data.edge_index
        d = (data.pos[row] - data.pos[col]).norm(dim=1)
        smeared = self.smear(d).float()
        x = self.atoms(data.z)
        for interaction in self.interactions:
            x = interaction(x, data.edge_index, smeared)
        return global_add_pool(self.out(x), data.batch, size=data.num_graphs).squeeze(1)


def both(model, data, create_graph):
    data.pos.requires_grad_()
    energy = model(data)
    pull = -torch.autograd.grad(energy.sum(), data.pos, create_graph=create_graph)[0]
    return energy, pull


torch.manual_seed(3)
train = DataLoader([molecule() for _ in range(96)], batch_size=32, shuffle=True)
test = DataLoader([molecule() for _ in range(64)], batch_size=32)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

for data in train:
    data = data.to("cuda")
    energy, pull = both(model, data, create_graph=True)
    loss = (energy - data.energy).abs().mean() + 10 * (pull - data.force).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("train", loss.item())

wrong = []
for data in test:
    data = data.to("cuda")
    energy, pull = both(model, data, create_graph=True)
    wrong.append((pull - data.force).abs().mean().item())
print("test", sum(wrong) / len(wrong))
