# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/generation_strategies (beam search) with Llama 3 8B in bfloat16
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
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

input_ids = torch.randint(0, 128000, (1, 512), device="cuda")
outputs = model.generate(
    input_ids,
    attention_mask=torch.ones_like(input_ids),
    max_new_tokens=8,
    num_beams=4,
    do_sample=False,
    pad_token_id=128001,
)
print(outputs.shape)
