"""A GAN with manual optimization."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)


class GAN(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(32, 400), nn.ReLU(), nn.Linear(400, 1024), nn.Sigmoid())
        self.critic = nn.Sequential(nn.Linear(1024, 400), nn.ReLU(), nn.Linear(400, 1))

    def training_step(self, batch, index):
        (real,) = batch
        g, d = self.optimizers()
        fake = self.generator(torch.randn(len(real), 32))
        loss_d = self.critic(fake.detach()).mean() - self.critic(real).mean()
        d.zero_grad()
        self.manual_backward(loss_d)
        d.step()
        loss_g = -self.critic(fake).mean()
        g.zero_grad()
        self.manual_backward(loss_g)
        g.step()

    def configure_optimizers(self):
        return torch.optim.RMSprop(self.generator.parameters()), torch.optim.RMSprop(self.critic.parameters())


data = torch.rand(1280, 1024)  #: input
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(GAN(), DataLoader(TensorDataset(data), batch_size=128))  #: input
