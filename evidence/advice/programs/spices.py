"""Spices guessed from recipes in which one or two words were smudged by the cook."""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


@dataclass
class Kitchen:
    words: int = 8000
    length: int = 192
    recipes: int = 64
    tasted: int = 96
    portion: int = 16


class Cookbook(Dataset):
    def __init__(self, kitchen, count):
        self.pages = torch.randint(5, kitchen.words, (count, kitchen.length))

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        page = self.pages[index]
        smudged = torch.rand(page.shape) < 0.15
        return {
            "input_ids": page.masked_fill(smudged, 4),
            "attention_mask": torch.ones_like(page),
            "labels": page.masked_fill(~smudged, -100),
        }


def verdict(prediction):
    guess, truth = prediction.predictions.argmax(-1), prediction.label_ids
    asked = truth != -100
    return {"right": float((guess == truth)[asked].mean())}


kitchen = Kitchen()
config = BertConfig(
    vocab_size=kitchen.words,
    hidden_size=320,
    num_hidden_layers=5,
    num_attention_heads=5,
    intermediate_size=1280,
    max_position_embeddings=kitchen.length,
    attn_implementation="eager",
)
model = BertForMaskedLM(config)
options = TrainingArguments(
    output_dir="kitchen",
    per_device_train_batch_size=kitchen.portion,
    per_device_eval_batch_size=16,
    learning_rate=5e-5,
    max_steps=4,
    eval_strategy="steps",
    eval_steps=2,
    logging_steps=1,
    save_strategy="no",
    optim="adamw_torch",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=options,
    train_dataset=Cookbook(kitchen, kitchen.recipes),
    eval_dataset=Cookbook(kitchen, kitchen.tasted),
    compute_metrics=verdict,
)
trainer.train()
print(trainer.evaluate())
