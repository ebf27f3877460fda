"""Forecasts of many series at once: patches of each channel through a transformer, trained with Lightning."""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __init__(self, count, channels=21, lookback=512, horizon=96):
        self.count, self.lookback, self.horizon = count, lookback, horizon
        time = torch.arange(count + lookback + horizon)[:, None]
        self.table = torch.sin(time / torch.linspace(3, 60, channels)) + 0.1 * torch.randn(len(time), channels)

    def __len__(self):
        return self.count

    def __getitem__(self, start):
        middle = start + self.lookback
        return self.table[start:middle].t(), self.table[middle : middle + self.horizon].t()


class RevIN(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1))

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True).detach(), x.std(-1, keepdim=True).detach() + 1e-5
        return (x - mean) / std * self.scale + self.shift, (mean, std)

    def inverse(self, y, stats):
        mean, std = stats
        return (y - self.shift) / (self.scale + 1e-8) * std + mean


class PatchForecaster(L.LightningModule):
    def __init__(self, channels=21, horizon=96, patch=16, stride=8, dim=128, heads=16, depth=3, lr=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.norm = RevIN(channels)
        patches = (512 - patch) // stride + 2
        self.pad = nn.ReplicationPad1d((0, stride))
        self.embed = nn.Linear(patch, dim)
        self.position = nn.Parameter(0.02 * torch.randn(patches, dim))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 256, dropout=0.2, activation="gelu", batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(dim * patches, horizon)
        self.forecasts, self.truth = [], []

    def forward(self, x):
        x, stats = self.norm(x)
        b, c, _ = x.shape
        x = self.pad(x).unfold(-1, self.hparams.patch, self.hparams.stride)
        x = (self.embed(x) + self.position).flatten(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.norm.inverse(self.head(x.flatten(1)).view(b, c, -1), stats)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_mse", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.forecasts.append(self(x))
        self.truth.append(y)

    def on_validation_epoch_end(self):
        forecasts, truth = torch.cat(self.forecasts), torch.cat(self.truth)
        self.log("val_mae", (forecasts - truth).abs().mean())
        self.log("val_mse", (forecasts - truth).square().mean())
        self.forecasts.clear()
        self.truth.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    torch.manual_seed(2021)
    train = DataLoader(Sensors(192), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(Sensors(128), batch_size=32)
    trainer = L.Trainer(
        accelerator="auto", devices=1, max_epochs=1, num_sanity_val_steps=0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(PatchForecaster(), train, val)
    print({name: value.item() for name, value in trainer.callback_metrics.items()})
