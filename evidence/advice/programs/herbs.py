"""Herbs by leaf: ConvNeXt of torchvision; a longer test between the rounds, gradients cleared where each round begins."""

import torch
import torchvision

with torch.device("cuda"):
    net = torchvision.models.convnext_tiny(num_classes=40)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)


def leaves(size):
    return torch.rand(size, 3, 128, 128, device="cuda"), torch.randint(0, 40, (size,), device="cuda")


def test():
    net.eval()
    with torch.no_grad():
        right = sum((net(leaf).argmax(1) == herb).sum().item() for leaf, herb in (leaves(96) for _ in range(2)))
    net.train()
    return right


for turn in range(4):
    optimizer.zero_grad()
    leaf, herb = leaves(2)
    torch.nn.functional.cross_entropy(net(leaf), herb).backward()
    optimizer.step()
    print(turn, test())
