"""What a change is called in the settings of a trainer, which has the program's loop."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_HALF = "half of per_device_train_batch_size"


@dataclass(frozen=True, slots=True)
class Trainer:
    """files: what the path of a file has in which its loop is. makers: module, class and the method that gets its
    settings. settings: by technique, what to write. what: the object that has the loop."""

    name: str
    files: tuple[str, ...]
    makers: tuple[tuple[str, str, str], ...]
    settings: Mapping[str, str]
    what: str = "Trainer"

    def has(self, file: str) -> bool:
        return any(part in file for part in self.files)

    def write(self, technique: str, is_made: bool) -> str:
        """is_made: at the line that makes the settings, not at one that only leads to the loop. "": it has none."""
        setting = self.settings.get(technique, "")
        return setting if is_made or not setting else f"{setting} for the {self.what} of this line"


# The first of which a stack has a file: transformers' Trainer uses an Accelerator itself.
TRAINERS = (
    Trainer(
        "transformers",
        ("/transformers/trainer.py",),
        (("transformers.training_args", "TrainingArguments", "__post_init__"),),
        {
            "keep_evaluation": "TrainingArguments(eval_accumulation_steps=1), or preprocess_logits_for_metrics",
            "fused": 'TrainingArguments(optim="adamw_torch_fused")',
            "checkpoint": "TrainingArguments(gradient_checkpointing=True)",
            "autocast": "TrainingArguments(bf16=True)",
            "sgd": 'TrainingArguments(optim="sgd")',
            "adam8bit": 'TrainingArguments(optim="adamw_bnb_8bit")',
            "factored": 'TrainingArguments(optim="adafactor")',
            "accumulate": f"TrainingArguments(gradient_accumulation_steps=2) with {_HALF}",
            "batch": f"{_HALF} in TrainingArguments",
        },
    ),
    Trainer(
        "lightning",
        ("/lightning/pytorch/trainer/", "/pytorch_lightning/trainer/"),
        (
            ("lightning.pytorch.trainer.trainer", "Trainer", "__init__"),
            ("pytorch_lightning.trainer.trainer", "Trainer", "__init__"),
        ),
        {
            "autocast": 'Trainer(precision="bf16-mixed")',
            "half_model": 'Trainer(precision="bf16-true")',
            "accumulate": "Trainer(accumulate_grad_batches=2) with half the batch_size of its DataLoader",
        },
    ),
    Trainer(
        "accelerate",
        ("/accelerate/accelerator.py", "/accelerate/optimizer.py"),
        (("accelerate.accelerator", "Accelerator", "__init__"),),
        {
            "autocast": 'Accelerator(mixed_precision="bf16")',
            "accumulate": "Accelerator(gradient_accumulation_steps=2), with accelerator.accumulate(model): around the "
            "step, and half the batch_size of its DataLoader",
        },
        "Accelerator",
    ),
)


def trainer_of(files: Iterable[str]) -> Trainer | None:
    """Of the frames of a stack."""
    some = set(files)
    return next((one for one in TRAINERS if any(one.has(file) for file in some)), None)
