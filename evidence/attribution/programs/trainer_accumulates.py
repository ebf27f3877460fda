"""Trainer with two micro-batches an update, then one evaluation."""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
length = int(sys.argv[1]) if len(sys.argv) > 1 else 64


class Text(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 500, (n, length))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=256, n_embd=128, n_layer=2, n_head=4))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, train_dataset=Text(96), eval_dataset=Text(40))
    trainer.train()
    trainer.evaluate()
