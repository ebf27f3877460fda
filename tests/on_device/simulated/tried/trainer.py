"""GPT-2, or BERT with evaluations, under the Trainer of transformers. --hand NAME makes that change in the options."""

import argparse
import tempfile

import torch
from transformers import (
    BertConfig,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

OPTIONS = {
    "sgd": {"optim": "sgd"},
    "fused": {"optim": "adamw_torch_fused"},
    "autocast": {"bf16": True},
    "checkpoint": {"gradient_checkpointing": True},
    "accumulate": {"gradient_accumulation_steps": 2},  # of half the batch
    "batch=16": {"per_device_train_batch_size": 16},
    "keep_evaluation": {"eval_accumulation_steps": 1},
}


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        tokens = torch.full((64,), index % 64)
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hand", default="")
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    if options.evaluate:
        small = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 256}
        model = BertForTokenClassification(BertConfig(vocab_size=2000, num_labels=64, **small))
    else:
        attention = "sdpa" if options.hand == "fused_attention" else "eager"
        small = {"vocab_size": 2000, "n_positions": 64, "n_layer": 4, "n_embd": 128, "n_head": 4}
        model = GPT2LMHeadModel(GPT2Config(**small, attn_implementation=attention))
    given = {"per_device_train_batch_size": 2 if options.evaluate else 8, "optim": "adamw_torch"}
    if options.evaluate:
        given |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 32}
    given |= OPTIONS.get(options.hand, {})
    if options.hand == "accumulate":
        given["per_device_train_batch_size"] //= 2
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=4, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=False, **given
        )
        count = {"compute_metrics": lambda found: {"rows": len(found.predictions)}} if options.evaluate else {}
        Trainer(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens(), **count).train()


main()
