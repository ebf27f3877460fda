# needs: torch, transformers >= 4.56
# after https://github.com/OpenBMB/ModelCenter/blob/main/docs/source/notes/benchmark.md (bert-large-uncased, transformers, fp32,
# 32 GB V100: the largest batch is 11); masked language modelling, 512 tokens, attention as it was then (eager), Adam
import torch
from transformers import BertConfig, BertForMaskedLM

config = BertConfig(
    vocab_size=30522,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    attn_implementation="eager",
)
model = BertForMaskedLM(config).cuda()
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

batch = 11
for step in range(2):
    input_ids = torch.randint(0, 30522, (batch, 512)).cuda()
    attention_mask = torch.ones_like(input_ids)
    labels = torch.full((batch, 512), -100)
    labels[:, ::7] = 17
    optimizer.zero_grad()
    loss = model(input_ids, attention_mask=attention_mask, labels=labels.cuda()).loss
    loss.backward()
    optimizer.step()
    print(step, loss.item())
