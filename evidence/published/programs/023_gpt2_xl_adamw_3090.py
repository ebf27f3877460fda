# needs: torch, transformers >= 4.56
# after the training loop of https://huggingface.co/docs/transformers/en/trainer_recipes and course chapter 3: GPT-2 XL, float32, one short sequence
import torch
from transformers import AutoModelForCausalLM, GPT2Config

config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=1600, n_layer=48, n_head=25)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
for step in range(2):
    batch = {"input_ids": torch.randint(0, 50257, (1, 128), device="cuda")}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    outputs = model(**batch, labels=batch["input_ids"])
    outputs.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, outputs.loss.item())
