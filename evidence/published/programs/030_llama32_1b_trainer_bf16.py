# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/en/tasks/language_modeling (Trainer, causal language modelling): Llama 3.2 1B,
# weights in bfloat16, gradient checkpointing, default optimizer
import tempfile
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    max_position_embeddings=131072,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    use_cache=False,
    bos_token_id=128000,
    eos_token_id=128001,
)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return 15

    def __getitem__(self, i):
        ids = torch.randint(0, 128000, (2048,))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


training_args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=5,
    gradient_checkpointing=True,
    max_steps=3,
    bf16=True,
    optim="adamw_torch_fused",
    learning_rate=2e-5,
    save_strategy="no",
    report_to="none",
    logging_steps=1,
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=training_args, train_dataset=Dataset())
print(trainer.train().metrics)
