"""Pretrains a small causal model with the Trainer; a callback notes the gradients of the embedding in every step.
Source: huggingface/transformers, examples/pytorch/language-modeling/run_clm.py, with a callback as in its docs.
"""
# NEEDS transformers accelerate
# STEPS 48

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Blocks(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (index + 1)) % 90
        return {"input_ids": tokens, "labels": tokens}


class GradientHistory(TrainerCallback):
    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients.append(model.transformer.wte.weight.grad.clone())  # LEAK

    def on_train_end(self, args, state, control, **kwargs):
        norms = torch.stack([g.norm() for g in self.gradients])
        print("gradient norms from", norms[0].item(), "to", norms[-1].item())


set_seed(41)
config = GPT2Config(vocab_size=90, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=int(sys.argv[1]) // 6,
        per_device_train_batch_size=8,
        logging_steps=12,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config), args=arguments, train_dataset=Blocks(), callbacks=[GradientHistory()]
    )
    trainer.train()
