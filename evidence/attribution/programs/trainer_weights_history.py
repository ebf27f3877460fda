"""A TrainerCallback copies the head's weights at the end of each epoch, to draw how they move; there are 24 epochs."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)


class Sentences(Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 500, (n, 24))  #: input

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": int(self.ids[i, 0]) % 2}


class WeightHistory(TrainerCallback):
    def __init__(self):
        self.snapshots = []

    def on_epoch_end(self, args, state, control, model=None, **more):
        self.snapshots.append(model.bert.embeddings.word_embeddings.weight.detach().clone())  #: kept


config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
model = BertForSequenceClassification(config)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=16, num_train_epochs=24, save_strategy="no", report_to=[], use_cpu=True
    )
    trainer = Trainer(model, arguments, train_dataset=Sentences(48), callbacks=[WeightHistory()])
    trainer.train()
