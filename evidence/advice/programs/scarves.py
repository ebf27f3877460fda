"""Knitting patterns, row by row: a small GPT-2 trained from scratch by transformers' Trainer."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Patterns(Dataset):
    """Text as blocks of ids, as `group_texts` would leave it."""

    def __init__(self, blocks, block_size, vocab_size):
        stream = torch.randint(0, vocab_size, (blocks * block_size,))
        self.blocks = stream.view(blocks, block_size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i].clone()}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--block_size", type=int, default=512)
    parser.add_argument("--n_layer", type=int, default=6)
    parser.add_argument("--n_embd", type=int, default=512)
    parser.add_argument("--max_steps", type=int, default=5)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def main():
    opts = parse()
    set_seed(opts.seed)
    config = GPT2Config(
        n_positions=opts.block_size,
        n_embd=opts.n_embd,
        n_layer=opts.n_layer,
        n_head=8,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")

    with tempfile.TemporaryDirectory() as out:
        training_args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=8,
            learning_rate=5e-4,
            weight_decay=0.1,
            warmup_steps=2,
            lr_scheduler_type="cosine",
            max_steps=opts.max_steps,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=training_args,
            train_dataset=Patterns(64, opts.block_size, config.vocab_size),
        )
        trainer.train()


if __name__ == "__main__":
    main()
