"""Mixed precision on the CPU: bfloat16 forward, two micro-batches per update, gradients clipped."""

import sys

import torch
from torch import nn

torch.manual_seed(63)
updates = int(sys.argv[1])
model = nn.Sequential(
    nn.Conv2d(3, 12, 3, padding=1),
    nn.BatchNorm2d(12),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(12, 24, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 10),
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
norms = []
for update in range(updates):
    optimizer.zero_grad(set_to_none=True)
    for micro in range(2):
        images = torch.randn(8, 3, 16, 16)
        labels = torch.randint(0, 10, (8,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
            loss = criterion(logits, labels) / 2
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norms.append(norm.item())
    optimizer.step()
print(f"mean gradient norm {sum(norms) / len(norms):.3f}, dtype {logits.dtype}")
