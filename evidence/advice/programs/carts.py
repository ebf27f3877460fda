"""Latent diffusion, fine-tuned by hand: diffusers' autoencoder as it is, its conditional UNet in training."""
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RESOLUTION = 256
TEXT_DIM = 256


class Captions(Dataset):
    """Pictures with the embeddings of their captions, computed before."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = torch.full((3, RESOLUTION, RESOLUTION), index / self.count * 2 - 1)
        return {"pixel_values": picture, "embeddings": torch.full((77, TEXT_DIM), 0.01 * index)}


def load_models():
    vae = AutoencoderKL(
        block_out_channels=(64, 128, 128),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        latent_channels=4,
        norm_num_groups=16,
    )
    unet = UNet2DConditionModel(
        sample_size=RESOLUTION // 4,
        block_out_channels=(160, 320, 640),
        layers_per_block=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=TEXT_DIM,
        attention_head_dim=8,
    )
    vae.requires_grad_(False)
    return vae.to(DEVICE), unet.to(DEVICE)


def training_loss(vae, unet, scheduler, batch):
    pixels = batch["pixel_values"].to(DEVICE)
    embeddings = batch["embeddings"].to(DEVICE)
    latents = vae.encode(pixels).latent_dist.sample() * vae.config.scaling_factor
    noise = torch.randn_like(latents)
    timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),), device=DEVICE)
    noisy = scheduler.add_noise(latents, noise, timesteps)
    pred = unet(noisy, timesteps, embeddings).sample
    return F.mse_loss(pred.float(), noise.float())


def main():
    torch.manual_seed(0)
    vae, unet = load_models()
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5, weight_decay=1e-2)
    loader = DataLoader(Captions(16), batch_size=4, shuffle=True)
    unet.train()
    for step, batch in enumerate(loader):
        loss = training_loss(vae, unet, scheduler, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}  loss {loss.detach().item():.4f}")


if __name__ == "__main__":
    main()
