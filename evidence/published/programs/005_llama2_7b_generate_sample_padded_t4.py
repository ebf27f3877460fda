# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/llm_tutorial (left-padded batch, sampling)
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

input_ids = torch.randint(1, 32000, (2, 2048))
attention_mask = torch.ones_like(input_ids)
input_ids[1, :300] = 0
attention_mask[1, :300] = 0
generated_ids = model.generate(
    input_ids=input_ids.to("cuda"),
    attention_mask=attention_mask.to("cuda"),
    max_new_tokens=8,
    do_sample=True,
    temperature=0.6,
    top_p=0.9,
    pad_token_id=0,
)
print(generated_ids.shape)
