# needs: torch, transformers >= 4.56, accelerate
# after https://huggingface.co/docs/transformers/en/tasks/image_classification (Trainer, ViT-B/16, food101's 101 labels), float32, batch 180
import tempfile
import torch
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments, ViTConfig


class Images(torch.utils.data.Dataset):
    picture = torch.randn(3, 224, 224)

    def __len__(self):
        return 360

    def __getitem__(self, i):
        return {"pixel_values": self.picture, "label": i % 101}


def collate_fn(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    return {"pixel_values": pixel_values, "labels": torch.tensor([example["label"] for example in examples])}


config = ViTConfig(
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    image_size=224,
    patch_size=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=101,
)
model = AutoModelForImageClassification.from_config(config)
training_args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    remove_unused_columns=False,
    learning_rate=5e-5,
    per_device_train_batch_size=180,
    max_steps=2,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    optim="adamw_torch_fused",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = Trainer(model=model, args=training_args, data_collator=collate_fn, train_dataset=Images())
print(trainer.train().metrics)
