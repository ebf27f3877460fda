# needs: torch, diffusers, transformers
# after https://huggingface.co/docs/diffusers/stable_diffusion and https://huggingface.co/blog/stable_diffusion ("Write your own
# inference pipeline": text encoder, UNet and VAE in float16, classifier-free guidance, 512 x 512), ten steps
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

torch.set_default_dtype(torch.float16)
with torch.device("cuda"):
    vae = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        latent_channels=4,
        sample_size=512,
    ).eval()
    text_encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=49408,
            hidden_size=768,
            intermediate_size=3072,
            num_hidden_layers=12,
            num_attention_heads=12,
        )
    ).eval()
    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8).eval()
torch.set_default_dtype(torch.float32)
scheduler = DDIMScheduler(
    beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
)

with torch.no_grad():
    tokens = torch.randint(0, 49406, (2, 77)).to("cuda")
    text_embeddings = text_encoder(tokens)[0]
    latents = torch.randn(1, 4, 64, 64, device="cuda", dtype=torch.float16)
    scheduler.set_timesteps(10)
    for t in scheduler.timesteps:
        latent_model_input = torch.cat([latents] * 2)
        noise_pred = unet(latent_model_input, t, encoder_hidden_states=text_embeddings).sample
        noise_pred_uncond, noise_pred_text = noise_pred.chunk(2)
        noise_pred = noise_pred_uncond + 7.5 * (noise_pred_text - noise_pred_uncond)
        latents = scheduler.step(noise_pred, t, latents).prev_sample.to(torch.float16)
    image = vae.decode(latents / 0.18215).sample
    image = (image / 2 + 0.5).clamp(0, 1)
print(image.shape)
