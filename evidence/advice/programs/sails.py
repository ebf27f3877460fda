"""Sails need to know tomorrow's wind: maps of today become maps of the next hours."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS = 12


class Winds(Dataset):
    def __init__(self, days, size=128):
        self.maps = torch.rand(days, 4, size, size)

    def __len__(self):
        return len(self.maps)

    def __getitem__(self, day):
        now = self.maps[day]
        return now, torch.cat([now[:2] * (1 - h / HOURS) for h in range(HOURS)])


class Mix(nn.Module):
    def __init__(self, width, spread):
        super().__init__()
        self.wide = nn.Conv2d(width, width, 3, padding=spread, dilation=spread)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(self.norm(self.wide(x)))


class Forecaster(L.LightningModule):
    def __init__(self, width=48, rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(4, width, 5, padding=2)
        self.mixes = nn.Sequential(*[Mix(width, 2**i) for i in range(4)])
        self.out = nn.Conv2d(width, 2 * HOURS, 1)
        self.compared = []

    def forward(self, x):
        return self.out(self.mixes(self.stem(x)))

    def training_step(self, batch, number):
        now, later = batch
        loss = nn.functional.l1_loss(self(now), later)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, number):
        now, later = batch
        guess = self(now)
        self.log("off", nn.functional.l1_loss(guess, later))
        self.compared.append((guess, later))

    def on_validation_epoch_end(self):
        guess = torch.cat([pair[0] for pair in self.compared])
        later = torch.cat([pair[1] for pair in self.compared])
        by_hour = (guess - later).abs().unflatten(1, (HOURS, 2)).mean(dim=(0, 2, 3, 4))
        for hour, off in enumerate(by_hour):
            self.log(f"off/{hour}", off)

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.parameters(), lr=self.hparams.rate)


def main():
    L.seed_everything(1, verbose=False)
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=3, num_sanity_val_steps=0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Forecaster(), DataLoader(Winds(16), batch_size=8, shuffle=True), DataLoader(Winds(40), batch_size=8))
    print(trainer.callback_metrics["off"])


main()
