"""Cathedrals scanned stone by stone, folded into a handful of numbers and raised again from them."""
import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, count, side):
        self.count, self.side = count, side
        ramp = np.linspace(-1.0, 1.0, side)
        self.bowl = np.sqrt(ramp[:, None, None] ** 2 + ramp[None, :, None] ** 2 + ramp[None, None, :] ** 2)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        noise = np.random.default_rng(index).random((self.side,) * 3)
        return torch.from_numpy((self.bowl < 0.8) * noise).unsqueeze(0)


def down(i, o):
    return nn.Sequential(nn.Conv3d(i, o, 3, 2, 1), nn.GroupNorm(4, o), nn.SiLU(), nn.Conv3d(o, o, 3, 1, 1), nn.SiLU())


def up(i, o):
    return nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv3d(i, o, 3, 1, 1), nn.GroupNorm(4, o), nn.SiLU())


class Mason(L.LightningModule):
    def __init__(self, side=64, width=16, latent=128, beta=1e-3):
        super().__init__()
        self.save_hyperparameters()
        w = width
        self.small = side // 8
        self.encoder = nn.Sequential(down(1, w), down(w, 2 * w), down(2 * w, 4 * w), nn.Flatten())
        self.moments = nn.Linear(4 * w * self.small**3, 2 * latent)
        self.start = nn.Linear(latent, 4 * w * self.small**3)
        self.decoder = nn.Sequential(up(4 * w, 4 * w), up(4 * w, 2 * w), up(2 * w, w), nn.Conv3d(w, 1, 3, 1, 1))
        self.raised = []
        self.double()

    def forward(self, x):
        mean, log_var = self.moments(self.encoder(x)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        y = self.decoder(self.start(z).view(len(x), -1, self.small, self.small, self.small))
        return y, -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(dim=1).mean()

    def training_step(self, x, index):
        y, kl = self(x)
        loss = nn.functional.binary_cross_entropy_with_logits(y, x) + self.hparams.beta * kl
        self.log("loss", loss)
        return loss

    def validation_step(self, x, index):
        y, _ = self(x)
        self.raised.append(y.sigmoid())

    def on_validation_epoch_end(self):
        all_of_them = torch.cat(self.raised)
        self.log("filled", all_of_them.mean())
        self.raised.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(1, verbose=False)
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=2, limit_train_batches=4, num_sanity_val_steps=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Mason(), DataLoader(Scans(32, 64), batch_size=8), DataLoader(Scans(32, 64), batch_size=8))
