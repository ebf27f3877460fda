# needs: torch, transformers >= 4.56, peft
# after the table of https://github.com/huggingface/peft/blob/v0.3.0/README.md (T0_3B, PEFT-LoRA in plain PyTorch, tweets, batch 8: 14.4GB GPU)
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForSeq2SeqLM, T5Config, get_linear_schedule_with_warmup

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
peft_config = LoraConfig(
    task_type=TaskType.SEQ_2_SEQ_LM,
    inference_mode=False,
    r=8,
    lora_alpha=32,
    lora_dropout=0.1,
    target_modules=["q", "v"],
)
model = get_peft_model(model, peft_config)
model.print_trainable_parameters()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
lr_scheduler = get_linear_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=0, num_training_steps=2)
for step in range(2):
    input_ids = torch.randint(2, 32000, (8, 52))
    attention_mask = torch.ones_like(input_ids)
    for row in range(8):
        input_ids[row, 52 - 3 * row :], attention_mask[row, 52 - 3 * row :] = 0, 0
    labels = torch.randint(2, 32000, (8, 4))
    outputs = model(input_ids=input_ids.cuda(), attention_mask=attention_mask.cuda(), labels=labels.cuda())
    loss = outputs.loss
    loss.backward()
    optimizer.step()
    lr_scheduler.step()
    optimizer.zero_grad()
    print(step, loss.item())
