"""Digits in one long epoch; the outputs of all batches are kept to score them after the epoch.
Source: TRI-ML/packnet-sfm issue 47: the trainer gathers what training_step returns, losses and all.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count):
        self.count = count
        self.images = torch.rand(60, 1, 14, 14)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.images[index % 60], index % 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.hidden = nn.Linear(8 * 36, 40)
        self.head = nn.Linear(40, 10)

    def forward(self, x):
        x = self.conv(x).relu()  # LEAK
        x = nn.functional.max_pool2d(x, 2).flatten(1)  # LEAK
        x = self.hidden(x).relu()  # LEAK
        return self.head(x)  # LEAK

    def training_step(self, batch):
        images, labels = batch
        logits = self(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}  # LEAK


def train(model, loader, opt):
    outputs = []
    for batch in loader:
        opt.zero_grad()
        output = model.training_step(batch)
        output["loss"].backward()
        opt.step()
        outputs.append(output)  # LEAK
    return outputs


torch.manual_seed(31)
model = Model()
loader = DataLoader(Digits(8 * int(sys.argv[1])), batch_size=8)
outputs = train(model, loader, torch.optim.Adam(model.parameters()))
print("loss", torch.stack([o["loss"] for o in outputs]).mean().item())
print("largest logit", torch.cat([o["logits"] for o in outputs]).max().item())
