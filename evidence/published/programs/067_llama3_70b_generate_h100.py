# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/llm_tutorial_optimization (how much memory a model in bfloat16 takes: 2 GB a billion)
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    bos_token_id=128000,
    eos_token_id=128001,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
input_ids = torch.randint(0, 128000, (1, 16), device="cuda")
print(model.generate(input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=2, pad_token_id=128001).shape)
