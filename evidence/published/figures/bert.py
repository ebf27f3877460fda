# transformers' page on one GPU of 2022: BERT-large with the Trainer, 512 random sequences of 512 tokens.
# "then" as a second argument brings back what PyTorch did before 1.11: softmax keeps its input, too, and zero_grad
# keeps gradients as zeros.
import sys
import tempfile

import numpy as np
import torch
from measure import figure, report
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainingArguments, logging

name = figure()
then = "then" in sys.argv[2:]
logging.set_verbosity_error()
length, sequences = 512, 32
ids = np.random.randint(100, 30000, (sequences, length))
labels = np.random.randint(0, 2, (sequences,))


class Dataset(torch.utils.data.Dataset):
    def __len__(self):
        return sequences

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(ids[i]), "labels": int(labels[i])}


class SoftmaxOfThen(torch.autograd.Function):
    """Keeps its input beside its output until its gradient is there."""

    @staticmethod
    def forward(ctx, x, dim):
        y = torch.softmax(x, dim)
        ctx.save_for_backward(x, y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, y, ctx.dim, x.dtype), None


config = BertConfig(
    vocab_size=30522,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    attn_implementation="eager",
)
model = AutoModelForSequenceClassification.from_config(config).to("cuda")
parts = name.removeprefix("hf-bert-").split("-")
if parts != ["load"]:
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=4 if parts[0] == "b4" else 1,
        gradient_accumulation_steps=1 if parts[0] == "b4" else 4,
        gradient_checkpointing="ckpt" in parts,
        fp16="fp16" in parts,
        optim="adafactor" if "adafactor" in parts else "adamw_torch",
        max_steps=3,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    optimizers = (None, None)
    if "adafactor" not in parts:
        # transformers' own AdamW of then went over the parameters one by one.
        optimizers = (torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, foreach=False), None)
    if then:
        # Autocast makes it single precision first: what is kept is that copy.
        torch.nn.functional.softmax = lambda x, dim=-1, dtype=None: SoftmaxOfThen.apply(x.float(), dim)
        zero = model.zero_grad
        model.zero_grad = lambda set_to_none=False: zero(set_to_none=False)
    Trainer(model=model, args=arguments, train_dataset=Dataset(), optimizers=optimizers).train()
report(torch.cuda.max_memory_reserved())
