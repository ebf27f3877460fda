# needs: torch, transformers >= 4.56
# after https://github.com/bigscience-workshop/t-zero/issues/12 (T0_3B, that is T5-LM 3B, full fine-tuning on 39.59 GiB: out of memory)
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

config = T5Config(
    vocab_size=32128,
    d_model=2048,
    d_kv=64,
    d_ff=5120,
    num_layers=24,
    num_heads=32,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    decoder_start_token_id=0,
)
with torch.device("cuda"):
    model = AutoModelForSeq2SeqLM.from_config(config)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(2):
    input_ids = torch.randint(2, 32000, (1, 512), device="cuda")
    labels = torch.randint(2, 32000, (1, 64), device="cuda")
    loss = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
