"""Perplexity of a language model over a text: no training, and logits over a large vocabulary."""

import math

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_positions=64, n_embd=64, n_layer=2, n_head=4)).eval()
text = torch.randint(0, 16000, (4, 640))  #: input
total = 0.0
for window in text.split(64, dim=1):
    with torch.no_grad():
        logits = model(window).logits
        total += nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), window[:, 1:].flatten()).item()
print(math.exp(total / 10))
