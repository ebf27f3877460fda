# needs: torch, transformers >= 4.56
# after the table of https://github.com/huggingface/peft/blob/v0.3.0/README.md (full fine-tuning of bigscience/bloomz-7b1 on one A100 80GB: OOM GPU)
import torch
from transformers import AutoModelForCausalLM, BloomConfig

config = BloomConfig(vocab_size=250880, hidden_size=4096, n_layer=30, n_head=32, use_cache=False)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(2):
    input_ids = torch.randint(0, 250680, (8, 64))
    attention_mask = torch.ones_like(input_ids)
    for row in range(8):  # left-padded, as Bloom's tokenizer does it
        input_ids[row, : 4 * row], attention_mask[row, : 4 * row] = 3, 0
    outputs = model(input_ids=input_ids.cuda(), attention_mask=attention_mask.cuda(), labels=input_ids.cuda())
    outputs.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, outputs.loss.item())
