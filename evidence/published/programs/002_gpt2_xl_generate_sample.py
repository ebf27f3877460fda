# needs: torch, transformers >= 4.56
# after https://huggingface.co/blog/how-to-generate (GPT-2, sampling with top-k, several sequences) with GPT-2 XL in float32
import torch
from transformers import AutoModelForCausalLM, GPT2Config, set_seed

config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=1600, n_layer=48, n_head=25)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config).eval()

set_seed(42)
model_inputs = {"input_ids": torch.randint(0, 50257, (1, 8)).to("cuda")}
model_inputs["attention_mask"] = torch.ones_like(model_inputs["input_ids"])
sample_outputs = model.generate(
    **model_inputs, max_new_tokens=20, do_sample=True, top_k=50, top_p=0.95, num_return_sequences=3, pad_token_id=50256
)
for i, sample_output in enumerate(sample_outputs):
    print(f"{i}: {len(sample_output)} tokens")
