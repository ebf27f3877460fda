"""Letters to friends: GPT-2 of transformers from nothing, attention as its paper has it."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=12000, n_positions=512, n_embd=320, n_layer=4, n_head=10, attn_implementation="eager")
model = GPT2LMHeadModel(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
rows = 6


def update(ids):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


for step in range(5):
    update(torch.randint(0, 12000, (rows, 512), device="cuda"))
