"""Denoising diffusion with diffusers: a small UNet, noise schedule and EMA."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from torch import nn

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(32, 64),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
ema = EMAModel(model.parameters(), decay=0.99)  #: kept
scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(8):
    clean = torch.rand(8, 1, 16, 16)  #: input
    noise = torch.randn_like(clean)  #: input
    times = torch.randint(0, 100, (8,))  #: input
    noisy = scheduler.add_noise(clean, noise, times)  #: input
    loss = nn.functional.mse_loss(model(noisy, times).sample, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.step(model.parameters())
