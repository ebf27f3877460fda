"""Previews of a sampler: two steps of each stream are shown, and the unfinished generators stay in a list."""

import torch
from diffusers import DDIMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    layers_per_block=1,
    block_out_channels=(16, 32),
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "UpBlock2D"),
).eval()
scheduler = DDIMScheduler()
scheduler.set_timesteps(20)


def denoise(count):
    images = torch.randn(count, 3, 16, 16)  #: input
    for t in scheduler.timesteps:
        with torch.no_grad():
            noise = unet(images, t).sample
            images = scheduler.step(noise, t, images).prev_sample
        yield images


streams = []
for request in range(40):
    stream = denoise(32)
    for _ in range(2):
        preview = next(stream)
    streams.append(stream)
    print(request, preview.std().item())
