# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/llama2 with Llama 2 13B in float16
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=32000,
    hidden_size=5120,
    intermediate_size=13824,
    num_hidden_layers=40,
    num_attention_heads=40,
    num_key_value_heads=40,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()

input_ids = torch.randint(0, 32000, (1, 32), device="cuda")
output = model.generate(input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=8, pad_token_id=0)
print(output.shape)
