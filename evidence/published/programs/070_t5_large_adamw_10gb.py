# needs: torch, transformers >= 4.56
# after https://huggingface.co/docs/transformers/en/model_doc/t5 (training) with AdamW: 8 bytes of state a parameter
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

config = T5Config(
    vocab_size=32128, d_model=1024, d_kv=64, d_ff=4096, num_layers=24, num_heads=16, decoder_start_token_id=0
)
with torch.device("cuda"):
    model = AutoModelForSeq2SeqLM.from_config(config)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(2):
    input_ids = torch.randint(2, 32000, (4, 128), device="cuda")
    labels = torch.randint(2, 32000, (4, 32), device="cuda")
    loss = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
