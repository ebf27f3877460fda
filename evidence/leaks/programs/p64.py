"""A small student learns from a large teacher, whose logits are looked up when a batch comes again."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Teacher:
    def __init__(self, net):
        self.net = net.eval()
        self.known = {}

    def logits(self, index, x):
        missing = [n for n, i in enumerate(index.tolist()) if i not in self.known]
        if missing:
            with torch.no_grad():
                for n, row in zip(missing, self.net(x[missing])):
                    self.known[int(index[n])] = row.clone()
        return torch.stack([self.known[i] for i in index.tolist()])


torch.manual_seed(65)
steps = int(sys.argv[1])
x = torch.randn(96, 20)
data = TensorDataset(torch.arange(96), x, (x[:, 0] > 0).long())
loader = DataLoader(data, batch_size=8, shuffle=True)
teacher = Teacher(nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 2)))
student = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
done = 0
while done < steps:
    for index, features, label in loader:
        soft = F.softmax(teacher.logits(index, features) / 3.0, dim=1)
        out = student(features)
        loss = F.kl_div(F.log_softmax(out / 3.0, dim=1), soft, reduction="batchmean") * 9.0
        loss = loss + F.cross_entropy(out, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == steps:
            break
print(f"{len(teacher.known)} rows of the teacher, last loss {loss.item():.4f}")
