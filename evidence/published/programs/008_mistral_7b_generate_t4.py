# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/mistral (float16, generate)
import torch
from transformers import AutoModelForCausalLM, MistralConfig

config = MistralConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=32768,
    sliding_window=4096,
    rms_norm_eps=1e-5,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()

model_inputs = torch.randint(0, 32000, (1, 256), device="cuda")
generated_ids = model.generate(
    model_inputs, attention_mask=torch.ones_like(model_inputs), max_new_tokens=16, do_sample=True, pad_token_id=2
)
print(generated_ids.shape)
