# transformers' text on optimizing models in production: OctoCoder in bf16, a short prompt, greedy, 60 new tokens.
import torch
from measure import report
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

config = GPTBigCodeConfig(
    vocab_size=49152,
    n_positions=8192,
    n_embd=6144,
    n_layer=40,
    n_head=48,
    n_inner=24576,
    multi_query=True,
    attn_implementation="eager",
    dtype=torch.bfloat16,
)
with torch.device("meta"):
    model = GPTBigCodeForCausalLM(config).to(torch.bfloat16)
model = model.to_empty(device="cuda").eval()
model.tie_weights()
ids = torch.randint(0, 49000, (1, 27))
inputs = {"input_ids": ids.to("cuda"), "attention_mask": torch.ones_like(ids).to("cuda")}
# What is sampled is not known here: all 60 tokens are made, as on the page.
model.generate(**inputs, max_new_tokens=60, min_new_tokens=60, do_sample=False, pad_token_id=0, eos_token_id=None)
report(torch.cuda.max_memory_allocated())
