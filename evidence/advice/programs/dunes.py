"""Dunes from noise: diffusers' UNet learns to take noise away; its attention as processors without a fused kernel."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.models.attention_processor import Attention, AttnProcessor

with torch.device("cuda"):
    unet = UNet2DModel(
        sample_size=32,
        block_out_channels=(64, 128),
        layers_per_block=2,
        norm_num_groups=8,
        down_block_types=("AttnDownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "AttnUpBlock2D"),
    )
for part in unet.modules():
    if isinstance(part, Attention):
        part.set_processor(AttnProcessor())
noises = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)


def shift(dunes):
    noise = torch.randn_like(dunes)
    when = torch.randint(0, 1000, (len(dunes),))
    rough = noises.add_noise(dunes.cpu(), noise.cpu(), when).cuda()
    guess = unet(rough, when.cuda()).sample
    return torch.nn.functional.mse_loss(guess, noise)


for number in range(4):
    loss = shift(torch.rand(4, 3, 32, 32, device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
