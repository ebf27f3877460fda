# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one ("vanilla training", per_device_train_batch_size=4):
# 512 sequences of 512 random token ids, binary labels; attention as it was then (eager)
import tempfile
import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments, logging

logging.set_verbosity_error()
seq_len, dataset_size = 512, 16
dummy_data = {
    "input_ids": np.random.randint(100, 30000, (dataset_size, seq_len)),
    "labels": np.random.randint(0, 2, (dataset_size,)),
}


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return dataset_size

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(dummy_data["input_ids"][i]), "labels": int(dummy_data["labels"][i])}


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
    per_device_train_batch_size=4,
    output_dir=tempfile.mkdtemp(),
    max_steps=3,
    logging_steps=1,
    optim="adamw_torch",
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=training_args, train_dataset=Dataset())
result = trainer.train()
print(f"Time: {result.metrics['train_runtime']:.2f}")
