"""Sixty-four electricity meters in one street: what will each of them read over the coming week?"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import PatchTSTConfig, PatchTSTForPrediction, Trainer, TrainingArguments

METERS = 64
CONTEXT = 384
HORIZON = 168


class Street(Dataset):
    def __init__(self, windows, seed):
        generator = torch.Generator().manual_seed(seed)
        self.readings = torch.rand(windows + CONTEXT + HORIZON, METERS, generator=generator)
        self.windows = windows

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        return {
            "past_values": self.readings[i : i + CONTEXT],
            "future_values": self.readings[i + CONTEXT : i + CONTEXT + HORIZON],
        }


def metrics(prediction):
    forecast = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"mae": float(abs(forecast - prediction.label_ids).mean())}


config = PatchTSTConfig(
    num_input_channels=METERS,
    context_length=CONTEXT,
    prediction_length=HORIZON,
    patch_length=12,
    patch_stride=8,
    d_model=64,
    num_attention_heads=8,
    num_hidden_layers=3,
    ffn_dim=192,
    attention_dropout=0.1,
    ff_dropout=0.1,
    attn_implementation="eager",
)
model = PatchTSTForPrediction(config)

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        max_steps=4,
        learning_rate=3e-4,
        logging_steps=2,
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        label_names=["future_values"],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Street(200, seed=1),
        eval_dataset=Street(320, seed=2),
        compute_metrics=metrics,
    )
    trainer.train()
    print(trainer.evaluate())
