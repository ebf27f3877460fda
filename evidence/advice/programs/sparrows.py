"""Sparrows drawn from noise: a UNet of diffusers takes the noise away in a few DDIM steps, guided by kind."""

import torch
from diffusers import DDIMScheduler, UNet2DModel

with torch.device("cuda"):
    unet = UNet2DModel(
        sample_size=64,
        block_out_channels=(64, 128, 128),
        layers_per_block=1,
        norm_num_groups=16,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
        num_class_embeds=11,
    )
unet.eval()
scheduler = DDIMScheduler(num_train_timesteps=1000)
scheduler.set_timesteps(4)

size = 8
kinds = torch.cat([torch.full((size,), 10), torch.arange(size)]).cuda()
picture = torch.randn(size, 3, 64, 64).cuda()
for moment in scheduler.timesteps:
    both = torch.cat([picture, picture])
    noise = unet(both, moment, class_labels=kinds).sample
    plain, guided = noise.chunk(2)
    noise = plain + 3.0 * (guided - plain)
    picture = scheduler.step(noise, moment, picture).prev_sample
print(picture.shape)
