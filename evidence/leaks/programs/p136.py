"""A trainer with modules, callbacks and a running mean; a module gathers the outputs of an epoch and clears them.
Source: Lightning-AI/pytorch-lightning, examples/fabric/build_your_own_trainer/trainer.py.
"""
# STEPS 48

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(36, 24), nn.ReLU(), nn.Linear(24, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 36))
        self.training_step_outputs = []

    def training_step(self, batch, batch_idx):
        (x,) = batch
        code = self.encoder(x)
        loss = nn.functional.mse_loss(self.decoder(code), x)
        self.training_step_outputs.append({"loss": loss.detach(), "code": code.detach()})
        return loss

    def on_train_epoch_end(self):
        codes = torch.cat([output["code"] for output in self.training_step_outputs])
        loss = torch.stack([output["loss"] for output in self.training_step_outputs]).mean()
        self.training_step_outputs.clear()
        return f"loss {loss.item():.4f}, spread of the codes {codes.std().item():.4f}"

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)


class Trainer:
    def __init__(self, max_epochs, callbacks=()):
        self.max_epochs, self.callbacks = max_epochs, callbacks

    def call(self, hook, *arguments):
        for callback in self.callbacks:
            getattr(callback, hook, lambda *_: None)(*arguments)

    def fit(self, module, loader):
        optimizer, scheduler = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            for batch_idx, batch in enumerate(loader):
                loss = module.training_step(batch, batch_idx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.call("on_train_batch_end", loss)
            scheduler.step()
            print(f"epoch {epoch}: {module.on_train_epoch_end()}")


class Smoothed:
    def __init__(self):
        self.value = None

    def on_train_batch_end(self, loss):
        now = loss.detach()
        self.value = now if self.value is None else 0.98 * self.value + 0.02 * now


torch.manual_seed(43)
smoothed = Smoothed()
loader = DataLoader(TensorDataset(torch.rand(96, 36)), batch_size=16, shuffle=True)
Trainer(int(sys.argv[1]) // len(loader), [smoothed]).fit(LitAutoEncoder(), loader)
print(smoothed.value.item())
