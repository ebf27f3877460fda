"""Lightning with gradient accumulation and validation four times an epoch; each validation's scores go to a history."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        self.scores = []

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.scores.append(self.net(x).softmax(-1))  #: kept

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(n):
    x = torch.randn(n, 64)  #: input
    return DataLoader(TensorDataset(x, x[:, :10].argmax(1)), batch_size=32)


trainer = L.Trainer(
    max_epochs=3,
    accumulate_grad_batches=2,
    val_check_interval=10,
    num_sanity_val_steps=0,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), loader(40 * 32), loader(8 * 32))
