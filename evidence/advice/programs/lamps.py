"""Street lamps at night: a Lightning module takes noise out of pictures, and keeps a test's answers for one number."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Nights(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        clear = torch.rand(3, 128, 128)
        return clear + 0.1 * torch.randn(3, 128, 128), clear


class Lamps(lightning.LightningModule):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )
        self.cleaned, self.clear = [], []

    def forward(self, x):
        return x - self.net(x)

    def training_step(self, batch, number):
        noisy, clear = batch
        return nn.functional.l1_loss(self(noisy), clear)

    def validation_step(self, batch, number):
        noisy, clear = batch
        self.cleaned.append(self(noisy))
        self.clear.append(clear)

    def on_validation_epoch_end(self):
        cleaned, clear = torch.cat(self.cleaned), torch.cat(self.clear)
        error = (cleaned - clear).pow(2).mean(dim=(1, 2, 3))
        print("PSNR", (-10 * error.log10()).mean().item())
        self.cleaned.clear()
        self.clear.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="gpu",
    devices=1,
    num_sanity_val_steps=0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Lamps(), DataLoader(Nights(16), batch_size=4), DataLoader(Nights(96), batch_size=8))
