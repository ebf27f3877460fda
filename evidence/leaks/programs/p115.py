"""Snapshot ensemble: at the end of each cycle of the learning rate a copy of the model joins the ensemble.
Source: TorchEnsemble-Community/Ensemble-Pytorch, torchensemble/snapshot_ensemble.py.
"""
# STEPS 48

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Snapshots:
    def __init__(self, base):
        self.base = base
        self.estimators = []

    def fit(self, loader, cycles):
        opt = torch.optim.SGD(self.base.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, len(loader))
        for _ in range(cycles):
            self.base.train()
            for x, y in loader:
                loss = nn.functional.cross_entropy(self.base(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                schedule.step()
            self.estimators.append(copy.deepcopy(self.base))  # LEAK

    @torch.no_grad()
    def predict(self, x):
        return torch.stack([e.eval()(x).softmax(dim=1) for e in self.estimators]).mean(dim=0)


torch.manual_seed(22)
x = torch.randn(96, 20)
y = x[:, :4].argmax(dim=1)
ensemble = Snapshots(nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)))
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
ensemble.fit(loader, int(sys.argv[1]) // len(loader))
print(len(ensemble.estimators), (ensemble.predict(x).argmax(dim=1) == y).float().mean().item())
