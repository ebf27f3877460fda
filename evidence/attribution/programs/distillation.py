"""A small student learns a large teacher's answers."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 100)).eval()
student = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 100))
optimizer = torch.optim.Adam(student.parameters())
for step in range(20):
    x = torch.randn(512, 128)  #: input
    with torch.no_grad():
        soft = F.softmax(teacher(x) / 2, dim=1)
    out = student(x)
    loss = F.kl_div(F.log_softmax(out / 2, dim=1), soft, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
