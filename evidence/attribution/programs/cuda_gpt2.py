"""GPT-2 of transformers on the GPU, a loop of its own."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
length = int(sys.argv[1]) if len(sys.argv) > 1 else 256
model = GPT2LMHeadModel(GPT2Config(vocab_size=8000, n_positions=512, n_embd=256, n_layer=4, n_head=8)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(6):
    ids = torch.randint(0, 8000, (8, length), device="cuda")  #: input
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
