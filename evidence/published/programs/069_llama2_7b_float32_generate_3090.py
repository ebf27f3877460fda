# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/llama2 (which says: the default is float32 unless a dtype is given)
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config).eval()
input_ids = torch.randint(0, 32000, (1, 16), device="cuda")
print(model.generate(input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=4, pad_token_id=0).shape)
