"""A Trainer that keeps each loss for a plot, and forgets to detach it; it evaluates every ten steps."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)


class Reviews(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 600, (n, 48))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": int(self.ids[i, 0]) % 2}


class Plotting(Trainer):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.losses = []

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        outputs = model(**inputs)
        if model.training:
            self.losses.append(outputs.loss)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


config = BertConfig(vocab_size=600, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    model = BertForSequenceClassification(config)
    Plotting(model, arguments, train_dataset=Reviews(320), eval_dataset=Reviews(48)).train()
