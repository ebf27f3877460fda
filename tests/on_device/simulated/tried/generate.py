"""A Llama that generates by a loop of its own, which forgot no_grad; --hand no_grad mends it."""

import argparse
import contextlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--hand", default="")
hand = parser.parse_args().hand
small = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=3200, **small)).cuda().eval()
tokens, cache = torch.randint(3200, (4, 128), device="cuda"), None
with torch.no_grad() if hand == "no_grad" else contextlib.nullcontext():
    for _ in range(8):
        found = model(tokens if cache is None else tokens[:, -1:], past_key_values=cache, use_cache=True)
        cache = found.past_key_values
        tokens = torch.cat([tokens, found.logits[:, -1:].argmax(-1)], 1)
