# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_memory_anatomy (float32 AdamW: 4 + 4 + 8 bytes a parameter)
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
    use_cache=False,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
for step in range(2):
    input_ids = torch.randint(1, 32000, (1, 512), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=input_ids, labels=input_ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
