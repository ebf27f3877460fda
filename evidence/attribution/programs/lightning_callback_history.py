"""A Lightning callback keeps features of each batch for a plot, in a list of its class; validated each epoch."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class Drift(lightning.Callback):
    history = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.history.append(module.hidden.mean(1))  #: kept


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.up, self.out = nn.Linear(48, 512), nn.Linear(512, 10)
        self.hidden = None

    def forward(self, x):
        h = self.up(x).relu()
        self.hidden = h.detach()
        return self.out(h.mean(1))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("loss", nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(n):
    x, y = torch.randn(n, 20, 48), torch.randint(0, 10, (n,))  #: input
    return DataLoader(TensorDataset(x, y), batch_size=32)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(max_epochs=4, accelerator="cpu", callbacks=[Drift()], **quiet)
trainer.fit(Classifier(), loader(384), loader(128))  #: input
