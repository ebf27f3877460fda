"""Travel journals taught to an old narrator who is allowed to move only a few fingers."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

VOCAB = 32000
EPOCHS, ROWS, CONTEXT = 1, 4, 512


def narrator():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        attn_implementation="eager",
        use_cache=False,
    )
    base = LlamaForCausalLM(config)
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, lora)


def collate(rows):
    ids = torch.stack([row for (row,) in rows])
    labels = ids.clone()
    labels[:, : CONTEXT // 4] = -100
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


model = narrator()
model.print_trainable_parameters()
model.to("cuda")

pages = TensorDataset(torch.randint(0, VOCAB, (ROWS * 5, CONTEXT)))
loader = DataLoader(pages, batch_size=ROWS, shuffle=True, collate_fn=collate)
optim = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.0)
scheduler = get_cosine_schedule_with_warmup(optim, 1, EPOCHS * len(loader))

for epoch in range(EPOCHS):
    model.train()
    total_loss = 0
    for step, batch in enumerate(loader):
        batch = {k: v.to("cuda") for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        total_loss += loss.detach().float()
        loss.backward()
        optim.step()
        scheduler.step()
        optim.zero_grad()
    print(f"{epoch=}: {total_loss / len(loader)}")
