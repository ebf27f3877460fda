# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/accelerate/en/quicktour (Accelerator(mixed_precision="bf16"), gradient clipping, scheduler)
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, GPT2Config, get_scheduler

accelerator = Accelerator(mixed_precision="bf16")
config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=1024, n_layer=24, n_head=16)
model = AutoModelForCausalLM.from_config(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
dataset = [{"input_ids": torch.randint(0, 50257, (1024,))} for _ in range(48)]
training_dataloader = torch.utils.data.DataLoader(dataset, batch_size=16)
scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=3)
model, optimizer, training_dataloader, scheduler = accelerator.prepare(model, optimizer, training_dataloader, scheduler)
for batch in training_dataloader:
    optimizer.zero_grad()
    loss = model(**batch, labels=batch["input_ids"]).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(loss.item())
