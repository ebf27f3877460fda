"""Currents on a square sea: from how the water moves now, a net that thinks in waves draws how it moves next."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        shape = (width, width, modes, modes)
        self.low = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / width**2)
        self.high = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / width**2)

    def forward(self, x):
        m = self.modes
        waves = torch.fft.rfft2(x)
        out = torch.zeros_like(waves)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", waves[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", waves[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Block(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.spectral = SpectralConv(width, modes)
        self.local = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return F.gelu(self.spectral(x) + self.local(x))


class Operator(nn.Module):
    def __init__(self, fields=2, width=32, modes=16, depth=4):
        super().__init__()
        self.lift = nn.Conv2d(fields + 2, width, 1)
        self.blocks = nn.ModuleList(Block(width, modes) for _ in range(depth))
        self.project = nn.Sequential(nn.Conv2d(width, 96, 1), nn.GELU(), nn.Conv2d(96, fields, 1))
        grid = torch.linspace(0, 1, 96)
        self.register_buffer("grid", torch.stack(torch.meshgrid(grid, grid, indexing="ij"))[None])

    def forward(self, x):
        x = self.lift(torch.cat([x, self.grid.repeat(len(x), 1, 1, 1)], dim=1))
        for block in self.blocks:
            x = block(x)
        return self.project(x)


class Currents(L.LightningModule):
    def __init__(self, horizon=3):
        super().__init__()
        self.net = Operator()
        self.horizon = horizon
        self.drawn = []

    def rollout(self, x):
        frames = []
        for _ in range(self.horizon):
            x = x + self.net(x)
            frames.append(x)
        return torch.stack(frames, dim=1)

    def training_step(self, batch, batch_idx):
        now, later = batch
        drawn = self.rollout(now)
        loss = F.mse_loss(drawn, later)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        now, later = batch
        drawn = self.rollout(now)
        self.drawn.append((drawn, later))

    def on_validation_epoch_end(self):
        drawn, later = (torch.cat(parts) for parts in zip(*self.drawn))
        self.log("relative", ((drawn - later).norm() / later.norm()))
        self.drawn.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def sea(count):
    return TensorDataset(torch.rand(count, 2, 96, 96), torch.rand(count, 3, 2, 96, 96))


if __name__ == "__main__":
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(Currents(), DataLoader(sea(32), batch_size=8), DataLoader(sea(320), batch_size=16))
