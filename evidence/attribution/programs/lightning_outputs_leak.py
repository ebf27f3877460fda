"""training_step appends its outputs, and on_train_epoch_end does not clear them."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 500))
        self.training_outputs = []

    def training_step(self, batch, index):
        x, y = batch
        logits = self.net(x)
        self.training_outputs.append(logits.detach())
        return nn.functional.cross_entropy(logits, y)

    def on_train_epoch_end(self):
        mean = torch.cat(self.training_outputs).mean()
        self.log("mean logit", mean)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


x = torch.randn(640, 64)  #: input
y = torch.randint(0, 500, (640,))  #: input
trainer = lightning.Trainer(
    max_epochs=4,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Classifier(), DataLoader(TensorDataset(x, y), batch_size=64))
