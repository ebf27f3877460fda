"""Stories in many tongues: a small Llama of transformers whose vocabulary is most of it."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

shape = LlamaConfig(
    vocab_size=32000,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
)
with torch.device("cuda"):
    teller = LlamaForCausalLM(shape)
rule = torch.optim.AdamW(teller.parameters(), lr=3e-4, fused=True)
for part in range(4):
    words = torch.randint(0, 32000, (4, 256), device="cuda")
    logits = teller(words[:, :-1], use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
    rule.zero_grad()
    loss.backward()
    rule.step()
