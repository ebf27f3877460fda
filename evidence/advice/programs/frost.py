"""Frost on windows from noise: a UNet of diffusers, an average of its weights, and pictures drawn with that in between."""

import copy

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel


def unet():
    return UNet2DModel(
        sample_size=64,
        in_channels=3,
        out_channels=3,
        layers_per_block=2,
        block_out_channels=(64, 128, 256),
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )


def draw(net, noise, steps=3):
    picture = torch.randn(8, 3, 64, 64, device="cuda")
    for step in reversed(range(0, 900, 900 // steps)):
        said = net(picture, step).sample
        picture = noise.step(said, step, picture).prev_sample
    return picture.clamp(-1, 1)


def main():
    net = unet().cuda()
    average = copy.deepcopy(net)
    noise = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for step in range(4):
        clean = torch.rand(8, 3, 64, 64).cuda() * 2 - 1
        added = torch.randn_like(clean)
        times = torch.randint(0, 1000, (8,), device="cuda")
        seen = noise.add_noise(clean, added, times)
        loss = F.mse_loss(net(seen, times).sample, added)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), net.parameters()):
                slow.lerp_(fast, 0.001)
        print(step, loss.item())
    pictures = draw(average, noise)
    print(pictures.shape)


main()
