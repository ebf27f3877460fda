"""Reviews by stars and words: BERT of transformers under its Trainer, with an evaluation behind each epoch."""

import tempfile

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, 4000, (count, 96))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def hits(prediction):
    return {"hits": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


config = BertConfig(
    vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        num_train_epochs=1,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        BertForMaskedLM(config), settings, train_dataset=Reviews(48), eval_dataset=Reviews(320), compute_metrics=hits
    )
    trainer.train()
