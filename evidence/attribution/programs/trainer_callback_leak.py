"""A Trainer whose compute_loss keeps the logits for a plot."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)


class Text(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 400, (n, 32))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Plotting(Trainer):
    history = []

    def compute_loss(self, model, inputs, return_outputs=False, **more):
        outputs = model(**inputs)
        self.history.append(outputs.logits.detach())
        return (outputs.loss, outputs) if return_outputs else outputs.loss


model = GPT2LMHeadModel(GPT2Config(vocab_size=400, n_positions=64, n_embd=128, n_layer=2, n_head=4))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=8, max_steps=30, save_strategy="no", report_to=[], use_cpu=True
    )
    Plotting(model, arguments, train_dataset=Text(256)).train()
