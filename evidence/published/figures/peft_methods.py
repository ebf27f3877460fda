# peft's comparison of methods: Llama-3.2-3B in bf16 on MetaMathQA. The length of the longest batch is not published:
# LENGTH is chosen so that LoRA of rank 32 takes what was published, and the other methods are then predictions.
import torch
from measure import figure, report
from peft import (
    IA3Config,
    LNTuningConfig,
    LoraConfig,
    PromptTuningConfig,
    TaskType,
    VeraConfig,
    get_peft_model,
)
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 610
name = figure()
config = LlamaConfig(
    vocab_size=128256,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=28,
    num_attention_heads=24,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=131072,
    tie_word_embeddings=True,
    pad_token_id=0,
    dtype=torch.bfloat16,
)
with torch.device("meta"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
model = model.to_empty(device="cuda")
model.tie_weights()
task = TaskType.CAUSAL_LM
methods = {
    "peft-full": None,
    "peft-lora32": LoraConfig(task_type=task, r=32, lora_alpha=64),
    "peft-lora64": LoraConfig(task_type=task, r=64, lora_alpha=128),
    "peft-dora32": LoraConfig(task_type=task, r=32, lora_alpha=64, use_dora=True),
    "peft-lora10-mlp": LoraConfig(task_type=task, r=10, target_modules=["gate_proj", "up_proj", "down_proj"]),
    "peft-ia3": IA3Config(task_type=task),
    "peft-lntuning": LNTuningConfig(task_type=task),
    "peft-vera": VeraConfig(task_type=task, target_modules=["q_proj", "v_proj"]),
    "peft-prompt": PromptTuningConfig(task_type=task, num_virtual_tokens=200),
}
if methods[name] is not None:
    model = get_peft_model(model, methods[name])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
model.train()
for length in (LENGTH // 2, LENGTH, LENGTH):
    ids = torch.randint(1, 128000, (4, length)).to("cuda")
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
report(torch.cuda.max_memory_reserved())
