"""Dragons out of fog: a child's drawings are buried in grain until a network digs them up by itself."""
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.models.attention_processor import AttnProcessor
from diffusers.training_utils import EMAModel

ROWS = 12


def build():
    unet = UNet2DModel(
        sample_size=64,
        in_channels=3,
        out_channels=3,
        layers_per_block=2,
        block_out_channels=(64, 128, 192, 256),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=32,
    )
    for module in unet.modules():
        if hasattr(module, "set_processor"):
            module.set_processor(AttnProcessor())
    return unet


def sample(unet, scheduler, count, steps=4):
    scheduler.set_timesteps(steps)
    picture = torch.randn(count, 3, 64, 64, device=unet.device)
    for t in scheduler.timesteps:
        with torch.no_grad():
            noise = unet(picture, t).sample
        picture = scheduler.step(noise, t, picture).prev_sample
    return picture.add(1).div(2).clamp(0, 1)


def main():
    accelerator = Accelerator()
    scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="squaredcos_cap_v2")
    drawings = torch.utils.data.DataLoader(torch.rand(60, 3, 64, 64) * 2 - 1, ROWS, shuffle=True)
    unet = build()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    unet, optimizer, drawings = accelerator.prepare(unet, optimizer, drawings)
    ema = EMAModel(unet.parameters(), decay=0.999)
    ema.to(accelerator.device)

    for clean in drawings:
        grain = torch.randn_like(clean)
        t = torch.randint(0, 1000, (len(clean),), device=clean.device)
        guess = unet(scheduler.add_noise(clean, grain, t), t).sample
        loss = torch.nn.functional.mse_loss(guess, grain)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        ema.step(unet.parameters())

    sheet = sample(accelerator.unwrap_model(unet).eval(), scheduler, 16)
    print(sheet.shape)


main()
