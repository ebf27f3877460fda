"""Trainer with an evaluation each epoch and metrics over all logits."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)


class Sentences(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 1000, (n, 48))  #: input
        self.labels = torch.randint(0, 4, (n,))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


def metrics(result):
    return {"accuracy": float(np.mean(result.predictions.argmax(-1) == result.label_ids))}


config = DistilBertConfig(vocab_size=1000, dim=128, hidden_dim=512, n_layers=2, n_heads=4, num_labels=4)
model = DistilBertForSequenceClassification(config)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model, arguments, train_dataset=Sentences(128), eval_dataset=Sentences(80), compute_metrics=metrics
    )
    trainer.train()
