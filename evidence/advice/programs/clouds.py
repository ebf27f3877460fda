"""Clouds by kind: blocks of torchvision with leaky units, learned by Lightning."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import Conv2dNormActivation


class Pictures(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        return torch.rand(3, 128, 128), i % 6


class Clouds(lightning.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.ModuleList(
            Conv2dNormActivation(width, width, activation_layer=nn.LeakyReLU, inplace=False) for _ in range(8)
        )
        self.kind = nn.Linear(width, 6)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.kind(x.mean(dim=(2, 3)))

    def training_step(self, batch, number):
        pictures, kinds = batch
        return nn.functional.cross_entropy(self(pictures), kinds)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


trainer = lightning.Trainer(
    max_epochs=1,
    accelerator="gpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Clouds(), DataLoader(Pictures(), batch_size=12))
