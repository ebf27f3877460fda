"""Some steps of training on a GPU, or on a simulated one: cuptimem fits --gate --memory 1GiB train.py."""

import torch
from model import WIDTH, make_model, train_step

model = make_model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    train_step(model, optimizer, torch.randn(64, WIDTH, device="cuda"))
