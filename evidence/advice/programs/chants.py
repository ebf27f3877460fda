"""Chants, continued: a Llama of transformers reads what there is, then goes on word by word with what it remembers."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=8000,
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
)
with torch.device("cuda"):
    singer = LlamaForCausalLM(config)
singer.eval()


@torch.no_grad()
def sing(words, count):
    out = singer(words, use_cache=True)
    past = out.past_key_values
    new = []
    for _ in range(count):
        word = out.logits[:, -1:].argmax(-1)
        new.append(word)
        out = singer(word, past_key_values=past, use_cache=True)
    return torch.cat(new, dim=1)


for _ in range(2):
    print(sing(torch.randint(0, 8000, (4, 384)).cuda(), 8).shape)
