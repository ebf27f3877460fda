"""timm's ViT. --hand NAME makes that change in the code."""

import argparse

import timm
import torch
import torch.nn.functional as F
from timm.layers import set_fused_attn

parser = argparse.ArgumentParser()
parser.add_argument("--hand", default="")
hand = parser.parse_args().hand
set_fused_attn(hand == "fused_attention")
model = timm.create_model("vit_tiny_patch16_224").cuda()
if hand == "checkpoint":
    model.set_grad_checkpointing()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    images, labels = torch.randn(4, 3, 224, 224, device="cuda"), torch.randint(1000, (4,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=hand == "autocast"):
        loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
