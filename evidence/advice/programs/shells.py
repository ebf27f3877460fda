"""Shells in photographs, by timm's smallest vision transformer."""

import timm
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def loader(size):
    data = TensorDataset(torch.rand(80, 3, 224, 224), torch.randint(0, 30, (80,)))
    return DataLoader(data, batch_size=size, shuffle=True)


def train(epochs=1, size=16):
    net = timm.create_model("vit_tiny_patch16_224", num_classes=30).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.05)
    for _ in range(epochs):
        for photo, shell in loader(size):
            photo, shell = photo.cuda(), shell.cuda()
            loss = cross_entropy(net(photo), shell)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


train()
