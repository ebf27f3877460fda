"""Continues prompts with model.generate of a small causal transformer with random weights.
Source: huggingface/transformers, examples/pytorch/text-generation/run_generation.py.
"""
# NEEDS transformers accelerate

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

NEW = 12
set_seed(14)
config = GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
model = GPT2LMHeadModel(config).eval()
for request in range(int(sys.argv[1]) // NEW):
    prompt = torch.randint(3, 96, (1, 4 + request % 5))
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        min_new_tokens=NEW,
        max_new_tokens=NEW,
        pad_token_id=0,
    )
    print(request, output[0].tolist())
