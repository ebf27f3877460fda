# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/grad_checkpointing and llama-recipes' pure bf16 full fine-tuning on one A100 80 GB
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
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
for step in range(2):
    input_ids = torch.randint(1, 32000, (2, 2048))
    attention_mask = torch.ones_like(input_ids)
    labels = input_ids.clone()
    attention_mask[1, 1500:] = 0  # right-padded
    labels[1, 1500:] = -100
    batch = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
    loss = model(**{k: v.to("cuda") for k, v in batch.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
