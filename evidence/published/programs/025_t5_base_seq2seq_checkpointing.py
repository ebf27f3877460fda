# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/en/tasks/summarization (Seq2SeqTrainer, T5), with gradient checkpointing
import tempfile
import torch
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config


def feature(i):
    return {
        "input_ids": torch.randint(2, 32000, (200 + 25 * (i % 12),)),
        "labels": torch.randint(2, 32000, (40 + 7 * (i % 12),)),
    }


def collate(features):  # what DataCollatorForSeq2Seq does
    source, target = max(len(f["input_ids"]) for f in features), max(len(f["labels"]) for f in features)
    batch = {
        "input_ids": torch.zeros(len(features), source, dtype=torch.long),
        "attention_mask": torch.zeros(len(features), source, dtype=torch.long),
        "labels": torch.full((len(features), target), -100),
    }
    for row, f in enumerate(features):
        batch["input_ids"][row, : len(f["input_ids"])] = f["input_ids"]
        batch["attention_mask"][row, : len(f["input_ids"])] = 1
        batch["labels"][row, : len(f["labels"])] = f["labels"]
    return batch


config = T5Config(
    vocab_size=32128, d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
)
model = AutoModelForSeq2SeqLM.from_config(config)
training_args = Seq2SeqTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    learning_rate=2e-5,
    per_device_train_batch_size=8,
    weight_decay=0.01,
    max_steps=2,
    gradient_checkpointing=True,
    save_strategy="no",
    report_to="none",
    logging_steps=1,
    disable_tqdm=True,
)
trainer = Seq2SeqTrainer(
    model=model, args=training_args, train_dataset=[feature(i) for i in range(16)], data_collator=collate
)
print(trainer.train().metrics)
