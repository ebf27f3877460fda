"""A Hugging Face Trainer with every reporter that is installed here: steps, an evaluation, a checkpoint."""

import json
import os
import sys

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

import cuptimem

mode = sys.argv[1] if len(sys.argv) > 1 else "callback"
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        length = 10**12 if mode == "oom" and at == 13 else 16
        if length > 16:
            torch.empty(length, dtype=torch.float64)
        return {"input_ids": torch.arange(16), "labels": torch.tensor(at % 2)}


def collate(rows):
    if mode == "caught" and len(rows) == 2:  # the evaluation has eight
        torch.empty(10**15)
    return default_data_collator(rows)


model = BertForSequenceClassification(
    BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=100)
)
reporters = os.environ.get("REPORTERS", "").split()
if mode == "report_to":
    from cuptimem.integrations import TransformersCallback  # noqa: F401  known to transformers from here on

    reporters.append("cuptimem")
arguments = TrainingArguments(
    "out",
    max_steps=20,
    logging_steps=5,
    eval_strategy="steps",
    eval_steps=10,
    save_steps=10,
    report_to=reporters or "none",
    trackio_space_id=None,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    auto_find_batch_size=mode == "caught",
    use_cpu=True,
    disable_tqdm=True,
    seed=1,
)
callbacks = (
    [] if mode in ("report_to", "attach") else [cuptimem.integrations.TransformersCallback("run-{rank}.cmem", wait=60)]
)
trainer = Trainer(
    model, arguments, train_dataset=Rows(), eval_dataset=Rows(), data_collator=collate, callbacks=callbacks
)
if mode == "attach":
    cuptimem.integrations.TransformersCallback("cuptimem-hf.{pid}.cmem").attach(trainer)
trainer.train()
with open("history.json", "w") as file:
    json.dump(trainer.state.log_history, file)
if mode == "callback":
    trainer.predict(Rows())
