# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one (gradient accumulation and gradient checkpointing:
# per_device_train_batch_size=1, gradient_accumulation_steps=4, gradient_checkpointing=True)
import tempfile
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return {"input_ids": torch.randint(100, 30000, (512,)), "labels": i % 2}


config = BertConfig(
    vocab_size=30522,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    attn_implementation="eager",
)
model = AutoModelForSequenceClassification.from_config(config).to("cuda")
training_args = TrainingArguments(
    per_device_train_batch_size=1,
    gradient_accumulation_steps=4,
    gradient_checkpointing=True,
    max_steps=2,
    output_dir=tempfile.mkdtemp(),
    logging_steps=1,
    optim="adamw_torch",
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=training_args, train_dataset=Dataset())
result = trainer.train()
print(f"Time: {result.metrics['train_runtime']:.2f}")
