# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/generation_strategies (greedy search; random weights of the published config)
import torch
from transformers import AutoModelForCausalLM, GPT2Config

config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config).eval()

input_ids = torch.randint(0, 50257, (1, 32)).to("cuda")
inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
outputs = model.generate(**inputs, max_new_tokens=32, do_sample=False, pad_token_id=50256)
print(outputs.shape)
