"""Fine-tunes a small sequence classifier with the Trainer; evaluates every twelve steps.
Source: huggingface/transformers, examples/pytorch/text-classification/run_glue.py.
"""
# NEEDS transformers accelerate

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, 120, (count, 14), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens[0] % 3}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


set_seed(40)
config = BertConfig(
    vocab_size=120,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    num_labels=3,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=int(sys.argv[1]),
        per_device_train_batch_size=8,
        eval_strategy="steps",
        eval_steps=12,
        logging_steps=6,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Sentences(96, 1),
        eval_dataset=Sentences(32, 2),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(trainer.evaluate())
