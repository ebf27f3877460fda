"""Lightning's predict returns all outputs; they are kept for good reason."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1000))

    def predict_step(self, batch, index):
        return self.net(batch[0])  #: kept


data = torch.randn(1600, 128)  #: input
trainer = lightning.Trainer(
    accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
)
outputs = trainer.predict(Net(), DataLoader(TensorDataset(data), batch_size=64))  #: input
print(torch.cat(outputs).shape)  #: kept
