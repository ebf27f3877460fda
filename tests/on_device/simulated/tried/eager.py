"""GPT-2 in a loop of its own, with a mask as large as its attention; --hand checkpoint is transformers' own switch."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser()
parser.add_argument("--hand", default="")
small = {"vocab_size": 3200, "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4}
model = GPT2LMHeadModel(GPT2Config(**small, attn_implementation="eager")).cuda()
if parser.parse_args().hand == "checkpoint":
    model.gradient_checkpointing_enable({"use_reentrant": False})
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(3200, (8, 128), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
