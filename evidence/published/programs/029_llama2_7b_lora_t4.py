# needs: torch, transformers >= 4.56, peft
# after https://huggingface.co/docs/peft/en/quicktour and package_reference/lora (float16 base, r=8, q_proj and v_proj), gradient checkpointing
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
    use_cache=False,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16)
peft_config = LoraConfig(
    task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=32, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]
)
model = get_peft_model(model, peft_config)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(3):
    input_ids = torch.randint(1, 32000, (1, 512), device="cuda")
    outputs = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), labels=input_ids)
    outputs.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, outputs.loss.item())
