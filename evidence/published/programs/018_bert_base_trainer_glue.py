# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/en/training (Trainer, sequence classification); token ids made here,
# padded by a collator as DataCollatorWithPadding does it
import tempfile
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        length = 60 + (index * 37) % 69  # 60 to 128 tokens
        return {"input_ids": torch.randint(1000, 30000, (length,)), "labels": index % 2}


def collate(features):
    length = 128
    input_ids = torch.zeros(len(features), length, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, feature in enumerate(features):
        n = len(feature["input_ids"])
        input_ids[row, :n] = feature["input_ids"]
        attention_mask[row, :n] = 1
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "token_type_ids": torch.zeros_like(input_ids),
        "labels": torch.tensor([feature["labels"] for feature in features]),
    }


config = BertConfig(
    vocab_size=30522,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    num_labels=2,
)
model = AutoModelForSequenceClassification.from_config(config)
training_args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=32,
    max_steps=3,
    learning_rate=2e-5,
    save_strategy="no",
    report_to="none",
    logging_steps=1,
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=training_args, train_dataset=Dataset(), data_collator=collate)
print(trainer.train().metrics)
