"""ConvNeXt under Lightning. --hand NAME makes that change in the code."""

import argparse

import lightning
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--hand", default="")
hand = parser.parse_args().hand
parts = 2 if hand == "accumulate" else 1


def checkpointed(block):
    forward = block.forward
    return lambda x: checkpoint(forward, x, use_reentrant=False) if block.training else forward(x)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.convnext_tiny(num_classes=100)
        if hand == "checkpoint":
            for stage in (1, 3, 5, 7):
                for block in self.net.features[stage]:
                    block.forward = checkpointed(block)

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        make = torch.optim.SGD if hand == "sgd" else torch.optim.AdamW
        return make(self.parameters(), lr=1e-3, **({"fused": True} if hand == "fused" else {}))


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.zeros(3, 64, 64), index % 100


def loader():
    return torch.utils.data.DataLoader(Images(), batch_size=16 // parts)


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(
    max_steps=4,
    limit_val_batches=2,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed" if hand == "autocast" else "32-true",
    accumulate_grad_batches=parts,
    **quiet,
).fit(Module(), loader(), loader())
