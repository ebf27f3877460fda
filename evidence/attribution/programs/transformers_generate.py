"""Text generation by transformers; nothing is trained."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=128, n_embd=192, n_layer=3, n_head=4)).eval()
prompt = torch.randint(1, 1000, (8, 32))  #: input
with torch.no_grad():
    out = model.generate(prompt, max_new_tokens=40, min_new_tokens=40, do_sample=False, pad_token_id=0)
print(out.shape)
