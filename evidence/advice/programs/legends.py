"""Worn legends with words rubbed away, guessed again by a scholar who is examined at the end."""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import RobertaConfig, RobertaForMaskedLM, Trainer, TrainingArguments, set_seed

VOCAB, LENGTH, MASK, PAD = 10000, 128, 4, 1


class Legends(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.lines = torch.randint(5, VOCAB, (count, LENGTH), generator=generator)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return {"input_ids": self.lines[index]}


class Rubbed:
    """Collates lines and rubs some of the words away."""

    def __init__(self, share=0.15):
        self.share = share

    def __call__(self, examples):
        ids = torch.stack([example["input_ids"] for example in examples])
        labels = ids.clone()
        away = torch.rand(ids.shape) < self.share
        labels[~away] = -100
        ids[away & (torch.rand(ids.shape) < 0.8)] = MASK
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def compute_metrics(prediction):
    guesses = np.argmax(prediction.predictions, axis=-1)
    asked = prediction.label_ids != -100
    return {"accuracy": float((guesses[asked] == prediction.label_ids[asked]).mean())}


def main():
    set_seed(3)
    config = RobertaConfig(
        vocab_size=VOCAB,
        hidden_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=1536,
        max_position_embeddings=LENGTH + 2,
        pad_token_id=PAD,
    )
    model = RobertaForMaskedLM(config)
    arguments = TrainingArguments(
        output_dir="scholar",
        max_steps=4,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=24,
        learning_rate=1e-4,
        weight_decay=0.01,
        save_strategy="no",
        logging_steps=2,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Legends(64, seed=1),
        eval_dataset=Legends(96, seed=2),
        data_collator=Rubbed(),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
