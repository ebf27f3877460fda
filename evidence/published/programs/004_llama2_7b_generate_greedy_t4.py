# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/llama2 (float16, device_map) with a full 2,048 token prompt
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
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()

input_ids = torch.randint(0, 32000, (1, 2048), device="cuda")
attention_mask = torch.ones_like(input_ids)
output = model.generate(input_ids, attention_mask=attention_mask, max_new_tokens=8, do_sample=False, pad_token_id=0)
print(output.shape)
