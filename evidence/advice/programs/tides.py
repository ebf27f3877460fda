"""High water from the days before: a GRU, wide, with its own Trainer of Lightning."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tides(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(64, 1536, num_layers=2, batch_first=True)
        self.water = nn.Linear(1536, 1)

    def training_step(self, batch, number):
        days, high = batch
        states, _ = self.gru(days)
        return nn.functional.mse_loss(self.water(states[:, -1]), high)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


days = TensorDataset(torch.rand(40, 12, 64), torch.rand(40, 1))
trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="gpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Tides(), DataLoader(days, batch_size=8))
