"""Commands heard on a building site: wav2vec 2.0 of transformers as a classifier, under its Trainer."""

import tempfile
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import Trainer, TrainingArguments, Wav2Vec2Config, Wav2Vec2ForSequenceClassification, set_seed

COMMANDS = ["up", "down", "left", "right", "stop", "go", "lift", "lower", "wait", "dig"]


@dataclass
class Options:
    seconds: float = 1.0
    rate: int = 16000
    train_clips: int = 80
    test_clips: int = 96
    batch_size: int = 16
    learning_rate: float = 3e-5
    labels: list = field(default_factory=lambda: list(COMMANDS))


class Clips(torch.utils.data.Dataset):
    def __init__(self, count, options, seed):
        self.count, self.samples = count, int(options.seconds * options.rate)
        self.kinds = len(options.labels)
        self.seed = seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 10_000 + i)
        kind = i % self.kinds
        tone = np.sin(2 * np.pi * (200 + 60 * kind) * np.arange(self.samples) / 16000)
        wave = tone + 0.1 * rng.standard_normal(self.samples)
        wave = (wave - wave.mean()) / wave.std()
        return {"input_values": wave.astype(np.float32), "labels": kind}


def accuracy(prediction):
    guesses = np.argmax(prediction.predictions, axis=1)
    return {"accuracy": float((guesses == prediction.label_ids).mean())}


def build(options):
    config = Wav2Vec2Config(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        num_conv_pos_embedding_groups=16,
        num_labels=len(options.labels),
        label2id={label: i for i, label in enumerate(options.labels)},
        id2label=dict(enumerate(options.labels)),
        mask_time_prob=0.0,
        layerdrop=0.0,
    )
    return Wav2Vec2ForSequenceClassification(config)


def main():
    set_seed(0)
    options = Options()
    model = build(options)
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=options.batch_size,
            per_device_eval_batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            warmup_steps=1,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=training,
            train_dataset=Clips(options.train_clips, options, 1),
            eval_dataset=Clips(options.test_clips, options, 2),
            compute_metrics=accuracy,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
