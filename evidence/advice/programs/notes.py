"""Short notes into drawers: BERT of transformers, four notes at a time."""

import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(
    vocab_size=9000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, num_labels=7
)
with torch.device("cuda"):
    bert = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(bert.parameters(), lr=5e-5)
losses = []
for _ in range(5):
    ids = torch.randint(0, 9000, (4, 32), device="cuda")
    drawer = torch.randint(0, 7, (4,), device="cuda")
    answer = bert(input_ids=ids, labels=drawer)
    answer.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(answer.loss.item())
