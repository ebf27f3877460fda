"""Harps painted from noise in few numbers: diffusers' autoencoder makes them few, its UNet learns on those."""

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader


def build():
    small = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(32, 64, 64),
        norm_num_groups=16,
        latent_channels=4,
    )
    unet = UNet2DModel(
        sample_size=32,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(64, 128),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=16,
    )
    return small.cuda().eval(), unet.cuda()


def main():
    small, unet = build()
    noises = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    for step, harps in enumerate(DataLoader(torch.rand(24, 3, 128, 128), batch_size=8)):
        few = small.encode(harps.cuda()).latent_dist.sample() * 0.18
        noise = torch.randn_like(few)
        when = torch.randint(0, 1000, (len(few),), device=few.device)
        seen = noises.add_noise(few, noise, when)
        guess = unet(seen, when).sample
        loss = F.mse_loss(guess, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


main()
