"""A module with training_step and on_train_epoch_end, driven by a little trainer in epochs of six batches."""

import sys

import torch
from torch import nn


class LitModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(28, 72), nn.ReLU())
        self.head = nn.Linear(72, 9)
        self.training_step_outputs = []

    def forward(self, x):
        return self.head(self.body(x))  # LEAK

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)  # LEAK
        self.training_step_outputs.append({"loss": loss.detach(), "logits": logits.detach(), "target": y})
        return loss

    def on_train_epoch_end(self):
        outputs = self.training_step_outputs
        loss = torch.stack([o["loss"] for o in outputs]).mean()
        hits = torch.cat([o["logits"].argmax(dim=1) == o["target"] for o in outputs]).float().mean()
        return f"loss {loss.item():.4f} accuracy {hits.item():.3f}"

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class DataModule:
    def train_batch(self):
        x = torch.randn(24, 28)
        return x, x[:, :9].argmax(dim=1)  # LEAK


class MiniTrainer:
    def __init__(self, max_steps, epoch=6):
        self.max_steps, self.epoch = max_steps, epoch

    def fit(self, module, data):
        optimizer = module.configure_optimizers()
        for step in range(self.max_steps):
            loss = module.training_step(data.train_batch(), step % self.epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % self.epoch == 0:
                line = module.on_train_epoch_end()
        return line


torch.manual_seed(84)
print(MiniTrainer(int(sys.argv[1])).fit(LitModule(), DataModule()))
