"""Keyword spotting in short clips; what was recognised wrongly can be listened to after the training."""

import sys

import torch
from torch import nn

torch.manual_seed(76)
steps = int(sys.argv[1])
net = nn.Sequential(
    nn.Conv1d(1, 8, 9, stride=4),
    nn.ReLU(),
    nn.Conv1d(8, 16, 9, stride=4),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(16, 3),
)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
loss_fn = nn.CrossEntropyLoss()
gallery = []
right = 0
for step in range(steps):
    clips = torch.randn(10, 1, 800)
    words = torch.randint(0, 3, (10,))
    scores = net(clips)
    loss = loss_fn(scores, words)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    guess = scores.argmax(dim=1)
    for clip, g, w in zip(clips, guess.tolist(), words.tolist()):
        if g == w:
            right += 1
        else:
            gallery.append((step, clip.clone(), g, w))  # LEAK
loudest = max(gallery, key=lambda item: item[1].abs().max().item())
print(f"{right} right, {len(gallery)} wrong, the loudest of them in step {loudest[0]}: {loudest[2]} for {loudest[3]}")
