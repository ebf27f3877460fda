"""A small BERT, trained by transformers' Trainer."""

import os
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

os.environ["TOKENIZERS_PARALLELISM"] = "false"
torch.manual_seed(0)


class Sentences(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 2000, (n, 64))  #: input
        self.labels = torch.randint(0, 2, (n,))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


config = BertConfig(
    vocab_size=2000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512, num_labels=2
)
model = BertForSequenceClassification(config)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=8, num_train_epochs=2, save_strategy="no", report_to=[], use_cpu=True
    )
    Trainer(model, arguments, train_dataset=Sentences(96)).train()
