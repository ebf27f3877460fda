"""Proverbs from one language into another: nn.Transformer with words of both, Adam with a warm start."""

import math

import torch
from torch import nn

VOCABULARY, WIDTH = 16_000, 256


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.theirs = nn.Embedding(VOCABULARY, WIDTH)
        self.ours = nn.Embedding(VOCABULARY, WIDTH)
        self.transformer = nn.Transformer(WIDTH, 8, 3, 3, 1024, batch_first=True)
        self.generator = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        source = self.theirs(source) * math.sqrt(WIDTH)
        target = self.ours(target) * math.sqrt(WIDTH)
        return self.generator(self.transformer(source, target, tgt_mask=mask, tgt_is_causal=True))


translator = Translator().cuda()
optimizer = torch.optim.Adam(translator.parameters(), lr=3e-4, betas=(0.9, 0.98))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

total = 0.0
for step in range(5):
    source = torch.randint(0, VOCABULARY, (24, 64)).cuda()
    target = torch.randint(0, VOCABULARY, (24, 65)).cuda()
    logits = translator(source, target[:, :-1])
    loss = criterion(logits.reshape(-1, VOCABULARY), target[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(translator.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    total += loss.item()
print(total)
