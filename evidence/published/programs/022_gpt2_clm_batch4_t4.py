# needs: torch, transformers >= 4.56
# after https://github.com/huggingface/transformers/issues/3360 (run_language_modeling.py, GPT-2, blocks of 1,024 tokens, float32,
# default batch of 4: out of memory on 14.73 GiB with the PyTorch of 2020, whose softmax kept its input, too); eager attention
import torch
from transformers import AutoModelForCausalLM, GPT2Config

config = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12, attn_implementation="eager")
model = AutoModelForCausalLM.from_config(config).cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, eps=1e-8)
for step in range(2):
    inputs = torch.randint(0, 50257, (4, 1024)).cuda()
    outputs = model(inputs, labels=inputs)
    loss = outputs[0]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.zero_grad()
    print(step, loss.item())
