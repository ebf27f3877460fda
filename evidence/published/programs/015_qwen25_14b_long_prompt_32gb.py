# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/qwen2 (chat model, bfloat16) with a prompt of 8,192 tokens
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

config = Qwen2Config(
    vocab_size=152064,
    hidden_size=5120,
    intermediate_size=13824,
    num_hidden_layers=48,
    num_attention_heads=40,
    num_key_value_heads=8,
    max_position_embeddings=32768,
    rms_norm_eps=1e-6,
    tie_word_embeddings=False,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

input_ids = torch.randint(0, 151643, (1, 8192), device="cuda")
generated_ids = model.generate(
    input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=4, do_sample=False, pad_token_id=151643
)
print(generated_ids.shape)
