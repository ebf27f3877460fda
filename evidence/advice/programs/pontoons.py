"""Draws pontoons from a text's vectors: a latent UNet of diffusers, guidance, DDIM, and the VAE at the end."""
import argparse

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_samples", type=int, default=8, help="images of each prompt")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--scale", type=float, default=7.5)
    parser.add_argument("--H", type=int, default=256)
    parser.add_argument("--W", type=int, default=256)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def load_models():
    unet = UNet2DConditionModel(
        sample_size=32,
        in_channels=4,
        out_channels=4,
        block_out_channels=(128, 256, 512),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=512,
        attention_head_dim=8,
    )
    vae = AutoencoderKL(
        block_out_channels=(64, 128, 256, 256),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        layers_per_block=2,
    )
    scheduler = DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    return unet.to(DEVICE).eval(), vae.to(DEVICE).eval(), scheduler


def encode_prompts(prompts, n_samples):
    """Stands for a text encoder: 77 tokens of 512."""
    cond = torch.stack([torch.randn(77, 512) + len(p) / 100 for p in prompts])
    uncond = torch.zeros_like(cond)
    return cond.repeat_interleave(n_samples, 0).to(DEVICE), uncond.repeat_interleave(n_samples, 0).to(DEVICE)


@torch.no_grad()
def sample(unet, scheduler, cond, uncond, opt):
    latents = torch.randn(len(cond), 4, opt.H // 8, opt.W // 8, device=DEVICE)
    scheduler.set_timesteps(opt.steps)
    context = torch.cat([uncond, cond])
    for t in scheduler.timesteps:
        model_input = torch.cat([latents] * 2)
        noise_pred = unet(model_input, t, encoder_hidden_states=context).sample
        noise_uncond, noise_text = noise_pred.chunk(2)
        noise_pred = noise_uncond + opt.scale * (noise_text - noise_uncond)
        latents = scheduler.step(noise_pred, t, latents).prev_sample
    return latents


def decode(vae, latents):
    latents = latents / vae.config.scaling_factor
    images = vae.decode(latents).sample
    return ((images + 1) / 2).clamp(0, 1)


def main():
    opt = parse_args()
    torch.manual_seed(opt.seed)
    unet, vae, scheduler = load_models()
    prompts = ["a pontoon at dawn", "a pontoon of barrels, etching"]

    results = []
    for prompt in prompts:
        cond, uncond = encode_prompts([prompt], opt.n_samples)
        latents = sample(unet, scheduler, cond, uncond, opt)
        images = decode(vae, latents)
        results.append(images)

    grid = torch.cat(results)
    print(grid.shape, grid.mean().item())


if __name__ == "__main__":
    main()
