# Texts on Stable Diffusion XL and Stable Diffusion 3 with diffusers: whole pipelines of random weights. Prompts are
# given as embeddings, for there are no tokenizers; their encoders lie on the device, as in the source.
import torch
from diffusers import (
    AutoencoderKL,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from measure import figure, report
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, T5Config, T5EncoderModel

name = figure()
STEPS = 2  # each step does the same


def random(kind, config, dtype):
    with torch.device("meta"):
        model = kind(config) if not isinstance(config, dict) else kind(**config)
    return model.to(dtype).to_empty(device="cuda").eval()


def clip(width, layers, heads, inner, projection, act, dtype, kind=CLIPTextModelWithProjection):
    config = CLIPTextConfig(
        vocab_size=49408,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        projection_dim=projection,
        hidden_act=act,
    )
    return random(kind, config, dtype)


def vae(channels, dtype, **more):
    config = {
        "in_channels": 3,
        "out_channels": 3,
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "block_out_channels": (128, 256, 512, 512),
        "layers_per_block": 2,
        "latent_channels": channels,
        "sample_size": 1024,
        **more,
    }
    return random(AutoencoderKL, config, dtype)


def sdxl(dtype, images, slicing=False, plain=False):
    unet = {
        "sample_size": 128,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (320, 640, 1280),
        "layers_per_block": 2,
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    }
    pipe = StableDiffusionXLPipeline(
        vae=vae(4, dtype, scaling_factor=0.13025, force_upcast=True),
        text_encoder=clip(768, 12, 12, 3072, 768, "quick_gelu", dtype, CLIPTextModel),
        text_encoder_2=clip(1280, 32, 20, 5120, 1280, "gelu", dtype),
        tokenizer=None,
        tokenizer_2=None,
        unet=random(UNet2DConditionModel, unet, dtype),
        scheduler=EulerDiscreteScheduler(),
        add_watermarker=False,
    )
    pipe.set_progress_bar_config(disable=True)
    if plain:
        pipe.unet.set_default_attn_processor()
        pipe.vae.set_default_attn_processor()
    if slicing:
        pipe.vae.enable_slicing()
    made = {"device": "cuda", "dtype": dtype}
    for _ in range(1 if images == 1 else 2):
        pipe(
            prompt_embeds=torch.randn(1, 77, 2048, **made),
            negative_prompt_embeds=torch.randn(1, 77, 2048, **made),
            pooled_prompt_embeds=torch.randn(1, 1280, **made),
            negative_pooled_prompt_embeds=torch.randn(1, 1280, **made),
            num_images_per_prompt=images,
            num_inference_steps=STEPS,
        )


def sd3(dtype=torch.float16):
    transformer = {
        "sample_size": 128,
        "patch_size": 2,
        "in_channels": 16,
        "num_layers": 24,
        "attention_head_dim": 64,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048,
        "out_channels": 16,
        "pos_embed_max_size": 192,
    }
    t5 = T5Config(
        vocab_size=32128,
        d_model=4096,
        d_kv=64,
        d_ff=10240,
        num_layers=24,
        num_heads=64,
        feed_forward_proj="gated-gelu",
    )
    pipe = StableDiffusion3Pipeline(
        transformer=random(SD3Transformer2DModel, transformer, dtype),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae(16, dtype, use_quant_conv=False, use_post_quant_conv=False, scaling_factor=1.5305, shift_factor=0.0609),
        text_encoder=clip(768, 12, 12, 3072, 768, "quick_gelu", dtype),
        tokenizer=None,
        text_encoder_2=clip(1280, 32, 20, 5120, 1280, "gelu", dtype),
        tokenizer_2=None,
        text_encoder_3=random(T5EncoderModel, t5, dtype),
        tokenizer_3=None,
    )
    pipe.set_progress_bar_config(disable=True)
    made = {"device": "cuda", "dtype": dtype}
    pipe(
        prompt_embeds=torch.randn(1, 333, 4096, **made),
        negative_prompt_embeds=torch.randn(1, 333, 4096, **made),
        pooled_prompt_embeds=torch.randn(1, 2048, **made),
        negative_pooled_prompt_embeds=torch.randn(1, 2048, **made),
        num_inference_steps=STEPS,
    )


half = torch.float16
programs = {
    "sdxl-unoptimized": lambda: sdxl(torch.float32, 4, plain=True),
    "sdxl-fp16": lambda: sdxl(half, 4, plain=True),
    "sdxl-fp16-sdpa": lambda: sdxl(half, 4),
    "sdxl-vae-slicing": lambda: sdxl(half, 4, slicing=True),
    "sdxl-doc-b1": lambda: sdxl(half, 1),
    "sd3-default": sd3,
    "quanto-sd3-b1": sd3,
}
programs[name]()
report(torch.cuda.max_memory_allocated())
