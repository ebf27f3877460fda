"""Lightning with torchmetrics that keep all predictions of an epoch."""

import logging
import warnings

import lightning
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
        self.auroc = torchmetrics.AUROC(task="multiclass", num_classes=10)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.auroc.update(self.net(x).softmax(1), y)
        self.log("auroc", self.auroc)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(n):
    x = torch.rand(n, 1, 28, 28)  #: input
    y = torch.randint(0, 10, (n,))  #: input
    return DataLoader(TensorDataset(x, y), batch_size=128)


trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(Classifier(), loader(1280), loader(640))  #: input
