"""A grandmother who knows every lullaby hums them to a child, who learns to hum along."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM

vocab, temperature = 12000, 2.0

grandmother = BertForMaskedLM(
    BertConfig(vocab_size=vocab, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048)
).cuda()
grandmother.eval()
child = DistilBertForMaskedLM(DistilBertConfig(vocab_size=vocab, dim=512, n_layers=3, n_heads=8, hidden_dim=1024)).cuda()

counts = np.random.zipf(1.3, size=vocab).clip(1, 10_000)
rarity = torch.from_numpy(1.0 / np.log(1.5 + counts)).cuda()

optimizer = torch.optim.AdamW(child.parameters(), lr=5e-4, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=3)
cosine = nn.CosineEmbeddingLoss()


def song(rows=16, length=128, masked=0.15):
    ids = torch.randint(5, vocab, (rows, length))
    labels = ids.clone()
    hidden = torch.rand(rows, length) < masked
    labels[~hidden] = -100
    ids[hidden] = 4
    return ids.cuda(), labels.cuda()


child.train()
for night in range(5):
    ids, labels = song()
    taught = grandmother(input_ids=ids, output_hidden_states=True)
    hummed = child(input_ids=ids, output_hidden_states=True)

    target = F.softmax(taught.logits.detach() / temperature, dim=-1)
    guess = F.log_softmax(hummed.logits / temperature, dim=-1)
    soft = (rarity * F.kl_div(guess, target, reduction="none")).sum(-1).mean() * temperature**2
    hard = F.cross_entropy(hummed.logits.view(-1, vocab), labels.view(-1))
    old, new = taught.hidden_states[-1].detach().flatten(0, 1), hummed.hidden_states[-1].flatten(0, 1)
    close = cosine(new, old, torch.ones(len(new), device="cuda"))

    loss = 5.0 * soft.float() + 2.0 * hard + close
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(child.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    print(f"night {night}: {loss.item():.3f}")
