"""A trainer with modules and hooks, validation after each epoch; a module gathers its outputs for the epoch's score.
Source: Lightning-AI/pytorch-lightning, docs: validation outputs are kept by the module since 2.0, and cleared by hand.
"""
# STEPS 48

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 24))
        self.validation_step_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        scores = self.net(x).softmax(dim=1)  # LEAK
        self.validation_step_outputs.append((scores, y.clone()))  # LEAK

    def on_validation_epoch_end(self):
        scores, labels = (torch.cat(parts) for parts in zip(*self.validation_step_outputs, strict=True))
        return (scores.argmax(dim=1) == labels).float().mean().item()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, module, train, val):
        optimizer = module.configure_optimizers()
        for self.current_epoch in range(self.max_epochs):
            module.train()
            for batch_idx, batch in enumerate(train):
                loss = module.training_step(batch, batch_idx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.validate(module, val)

    @torch.no_grad()
    def validate(self, module, val):
        module.eval()
        for batch_idx, batch in enumerate(val):
            module.validation_step(batch, batch_idx)
        print(f"epoch {self.current_epoch}: accuracy {module.on_validation_epoch_end():.3f}")


torch.manual_seed(42)
x = torch.randn(144, 20)
data = TensorDataset(x, x.argmax(dim=1))
train, val = torch.utils.data.random_split(data, [96, 48])
loaders = DataLoader(train, batch_size=16, shuffle=True), DataLoader(val, batch_size=16)
Trainer(int(sys.argv[1]) // len(loaders[0])).fit(LitClassifier(), *loaders)
