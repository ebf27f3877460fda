# needs: torch, diffusers
# after https://huggingface.co/docs/diffusers/training/sdxl (train_text_to_image_sdxl.py: UNet of SDXL, all weights, AdamW, bf16 autocast,
# gradient checkpointing, batch 1, 1024 x 1024)
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel

with torch.device("cuda"):
    unet = UNet2DConditionModel(
        sample_size=128,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(320, 640, 1280),
        layers_per_block=2,
        cross_attention_dim=2048,
        transformer_layers_per_block=(1, 2, 10),
        attention_head_dim=(5, 10, 20),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816,
    )
unet.enable_gradient_checkpointing()
unet.train()
noise_scheduler = DDPMScheduler(
    beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000
)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-5, weight_decay=1e-2, fused=True)
for step in range(2):
    model_input = torch.randn(1, 4, 128, 128, device="cuda")
    noise = torch.randn_like(model_input)
    timesteps = torch.randint(0, 1000, (1,), device="cuda")
    noisy_model_input = noise_scheduler.add_noise(model_input, noise, timesteps)
    conditions = {
        "text_embeds": torch.randn(1, 1280, device="cuda"),
        "time_ids": torch.tensor([[1024.0, 1024, 0, 0, 1024, 1024]], device="cuda"),
    }
    with torch.autocast("cuda", dtype=torch.bfloat16):
        model_pred = unet(
            noisy_model_input,
            timesteps,
            torch.randn(1, 77, 2048, device="cuda"),
            added_cond_kwargs=conditions,
            return_dict=False,
        )[0]
    loss = F.mse_loss(model_pred.float(), noise.float())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
