"""A Lightning fit that accumulates gradients, with a sanity check, validation and checkpoints, logged to CSV; then a
test and a prediction."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger

import cuptimem

mode = sys.argv[1] if len(sys.argv) > 1 else "fit"


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256, bias=False)

    def training_step(self, batch, number):
        if mode == "oom" and number == 5:
            torch.empty(10**15)
        return self.layer(batch).sum()

    def validation_step(self, batch, number):
        self.layer(batch)

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), foreach=False)


class Dashed(CSVLogger):
    group_separator = "-"


loader = torch.utils.data.DataLoader(torch.ones(40, 256), batch_size=2)
callback = cuptimem.integrations.LightningCallback("run-{rank}.cmem", wait=60)
trainer = Trainer(
    accelerator="cpu",
    max_epochs=2,
    accumulate_grad_batches=2,
    log_every_n_steps=5,
    logger=[CSVLogger("logs"), Dashed("dashed")],
    callbacks=[callback],
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Model()
trainer.fit(model, loader, loader)
trainer.test(model, loader)
trainer.predict(model, loader)
