# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/llama3 in float16, on a card that is a little smaller than the weights
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    bos_token_id=128000,
    eos_token_id=128001,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
input_ids = torch.randint(0, 128000, (1, 16), device="cuda")
print(model.generate(input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=4, pad_token_id=128001).shape)
