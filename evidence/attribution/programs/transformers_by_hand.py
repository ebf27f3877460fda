"""A T5 with a loop of its own, and a perplexity on held-out batches."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(vocab_size=800, d_model=128, d_ff=256, d_kv=32, num_layers=2, num_heads=4, decoder_start_token_id=0)
model = T5ForConditionalGeneration(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
held_out = [torch.randint(1, 800, (8, 32)) for _ in range(4)]  #: input
for epoch in range(2):
    model.train()
    for _ in range(8):
        source = torch.randint(1, 800, (8, 32))  #: input
        target = torch.randint(1, 800, (8, 24))  #: input
        loss = model(input_ids=source, labels=target).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        losses = [model(input_ids=x, labels=x).loss.item() for x in held_out]
