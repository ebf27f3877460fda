# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/gptj (generation example) in float32
import torch
from transformers import AutoModelForCausalLM, GPTJConfig

config = GPTJConfig(vocab_size=50400, n_positions=2048, n_embd=4096, n_layer=28, n_head=16, rotary_dim=64)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config).eval()

input_ids = torch.randint(0, 50257, (1, 33)).to("cuda")
gen_tokens = model.generate(
    input_ids,
    attention_mask=torch.ones_like(input_ids),
    do_sample=True,
    temperature=0.9,
    max_new_tokens=16,
    pad_token_id=50256,
)
print(gen_tokens.shape)
