"""An MLP-Mixer of timm with its own optimizer and scheduler."""

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import nn

torch.manual_seed(0)
model = timm.create_model("mixer_s32_224", img_size=64, num_classes=10)
optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3)
scheduler = CosineLRScheduler(optimizer, t_initial=8)
for step in range(8):
    x = torch.rand(4, 3, 64, 64)  #: input
    y = torch.randint(0, 10, (4,))  #: input
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(step)
