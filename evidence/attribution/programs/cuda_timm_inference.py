"""Inference with a timm network on the GPU."""

import timm
import torch

torch.manual_seed(0)
model = timm.create_model("vit_tiny_patch16_224", num_classes=100).cuda().eval()
with torch.inference_mode():
    for _ in range(10):
        x = torch.rand(32, 3, 224, 224, device="cuda")  #: input
        out = model(x)
