# needs: torch, diffusers, accelerate
# after https://huggingface.co/docs/diffusers/training/text2image (train_text_to_image.py: Stable Diffusion 1.5, 512 x 512, batch 1,
# gradient accumulation 4, gradient checkpointing, mixed precision: "it is possible to train a model on a single 24GB GPU")
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel

accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="fp16")
with torch.device("cuda"):
    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
unet.enable_gradient_checkpointing()
unet.train()
noise_scheduler = DDPMScheduler(
    beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000
)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5, betas=(0.9, 0.999), weight_decay=1e-2, eps=1e-8)
unet, optimizer = accelerator.prepare(unet, optimizer)
for step in range(8):
    with accelerator.accumulate(unet):
        latents = torch.randn(1, 4, 64, 64, device="cuda") * 0.18215  # what the frozen VAE gives
        encoder_hidden_states = torch.randn(1, 77, 768, device="cuda", dtype=torch.float16)  # the frozen text encoder
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (1,), device="cuda").long()
        noisy_latents = noise_scheduler.add_noise(latents, noise, timesteps)
        model_pred = unet(noisy_latents, timesteps, encoder_hidden_states, return_dict=False)[0]
        loss = F.mse_loss(model_pred.float(), noise.float(), reduction="mean")
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
print(loss.item())
