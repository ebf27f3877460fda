"""Butterflies under glass, eighty kinds of them, named from their wings alone."""
import tempfile

import numpy as np
import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

KINDS = 80


class Cabinet(torch.utils.data.Dataset):
    def __init__(self, drawers):
        self.drawers = drawers

    def __len__(self):
        return self.drawers

    def __getitem__(self, drawer):
        return {"pixel_values": torch.rand(3, 224, 224), "labels": drawer % KINDS}


def compute_metrics(prediction):
    logits, labels = prediction
    top = np.argsort(-logits, axis=-1)[:, :5]
    return {"first": float((top[:, 0] == labels).mean()), "in_five": float((top == labels[:, None]).any(1).mean())}


def model_init():
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=8,
        num_attention_heads=6,
        intermediate_size=1536,
        num_labels=KINDS,
        hidden_dropout_prob=0.1,
        attn_implementation="eager",
    )
    return ViTForImageClassification(config)


def main():
    set_seed(11)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=20,
            per_device_eval_batch_size=40,
            max_steps=5,
            learning_rate=3e-4,
            weight_decay=0.05,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        trainer = Trainer(
            model=model_init(),
            args=arguments,
            train_dataset=Cabinet(100),
            eval_dataset=Cabinet(120),
            compute_metrics=compute_metrics,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
