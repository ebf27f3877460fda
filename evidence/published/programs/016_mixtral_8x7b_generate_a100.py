# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/mixtral (bfloat16) on one A100 80 GB
import torch
from transformers import AutoModelForCausalLM, MixtralConfig

config = MixtralConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    num_local_experts=8,
    num_experts_per_tok=2,
    max_position_embeddings=32768,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
input_ids = torch.randint(0, 32000, (1, 16), device="cuda")
print(model.generate(input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=4, pad_token_id=2).shape)
