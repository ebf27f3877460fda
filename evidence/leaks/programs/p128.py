"""Classifier over several epochs; the losses are kept without their graph and drawn at the end.
Source: pytorch/examples, mnist/main.py, with the loss curve of many notebooks.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(35)
x = torch.randn(96, 32)
loader = DataLoader(TensorDataset(x, x[:, :5].argmax(dim=1)), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 5))
opt = torch.optim.Adadelta(net.parameters(), lr=1.0)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.7)
losses = []
for epoch in range(int(sys.argv[1]) // len(loader)):
    net.train()
    for data, target in loader:
        opt.zero_grad()
        loss = nn.functional.nll_loss(nn.functional.log_softmax(net(data), dim=1), target)  # NEGLIGIBLE
        loss.backward()
        opt.step()
        losses.append(loss.detach())  # NEGLIGIBLE
    schedule.step()
curve = torch.stack(losses)
print(curve[:8].mean().item(), curve[-8:].mean().item())
