"""Lanterns by shape: a small vision transformer of timm learns what a larger one of its kind says."""

import timm
import torch
import torch.nn.functional as F

device = torch.device("cuda")
teacher = timm.create_model("vit_small_patch16_224", img_size=160, num_classes=100).to(device).eval()
student = timm.create_model("vit_tiny_patch16_224", img_size=160, num_classes=100).to(device)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)


def batches(count, size):
    for _ in range(count):
        yield torch.rand(size, 3, 160, 160)


student.train()
for lanterns in batches(4, 16):
    lanterns = lanterns.to(device, non_blocking=True)
    known = teacher(lanterns)
    guess = student(lanterns)
    loss = F.kl_div(guess.log_softmax(-1), known.detach().softmax(-1), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
