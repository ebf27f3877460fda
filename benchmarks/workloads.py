"""What is measured: functions as users write them. Each entry of WORKLOADS returns a function that runs n steps and
returns the seconds that each of them took; what it builds first is not timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Steps = Callable[[int], list[float]]


after_step: Callable[[], None] | None = None  # what a loop that is logged does, too: the worker sets it


def timed(step: Callable[[], Any]) -> Steps:
    def run(count: int) -> list[float]:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            step()
            if after_step is not None:
                after_step()
            times.append(time.perf_counter() - begin)
        return times

    return run


def micro() -> Steps:
    """One allocation with its free, 30 Python frames deep: a step is 2,000 of them; times are per pair."""
    import torch

    a = torch.ones(4)
    inner = 2000

    def loop() -> float:
        begin = time.thread_time_ns()
        for _ in range(inner):
            a + a
        return (time.thread_time_ns() - begin) / inner * 1e-9

    def deep(levels: int) -> float:
        return loop() if levels == 0 else deep(levels - 1)

    def run(count: int) -> list[float]:
        return [deep(26) for _ in range(count)]

    return run


def gpt() -> Steps:
    """A GPT-style script: 4 layers, width 128, context 128, batch 8, AdamW."""
    import torch
    from torch import nn

    from benchmarks.gpt import make

    context, vocabulary = 128, 512
    torch.manual_seed(0)
    data = torch.randint(vocabulary, (20_000,))
    model = make(width=128, heads=4, layers=4, context=context, vocabulary=vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        at = torch.randint(len(data) - context - 1, (8,)).tolist()
        x = torch.stack([data[i : i + context] for i in at])
        y = torch.stack([data[i + 1 : i + context + 1] for i in at])
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return timed(step)


def small_step() -> Steps:
    """The worst case: a step of about 4 ms that is all Python, with about 1,300 events."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    x, y = torch.randn(4, 8, 128), torch.randint(10, (4, 8))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).view(-1, 10), y.view(-1)).backward()
        optimizer.step()

    return timed(step)


def transformers() -> Steps:
    """A Hugging Face GPT-2 with random weights in a plain loop."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=512, n_positions=128, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        tokens = torch.randint(512, (8, 96))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return timed(step)


def no_callbacks(_: str) -> list[Any]:
    return []


callbacks = no_callbacks  # of a trainer, the class's name: the worker sets them


def trainer() -> Steps:
    """A Hugging Face Trainer of a small GPT-2, with a log every 10 steps. A step, from its begin to that of the next,
    is CPU time of the program's thread: that of the trainer's start and end is in none."""
    import tempfile
    from itertools import pairwise

    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    config = GPT2Config(vocab_size=512, n_positions=64, n_embd=128, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    rows = [{"input_ids": list(range(i, i + 64)), "labels": list(range(i, i + 64))} for i in range(64)]
    begun: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]  # transformers has no types here
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begun.append(time.thread_time())

    def run(count: int) -> list[float]:
        begun.clear()
        with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
            arguments = TrainingArguments(
                folder,
                max_steps=count + 1,
                logging_steps=10,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
            )
            added = [Clock(), *callbacks("TransformersCallback")]
            Trainer(model, arguments, train_dataset=rows, callbacks=added).train()
        return [after - before for before, after in pairwise(begun)]

    return run


def lightning() -> Steps:
    """The same of Lightning, with a small GPT and a logger of CSV."""
    import tempfile
    from itertools import pairwise

    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.loggers import CSVLogger

    from benchmarks.gpt import make

    class Model(pl.LightningModule):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.net = make(width=128, heads=4, layers=2, context=64, vocabulary=512)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch[:, :-1], batch[:, 1:].contiguous())

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    model, rows = Model(), torch.randint(512, (512, 65))
    begun: list[float] = []

    class Clock(pl.Callback):  # type: ignore[misc]  # as above
        def on_train_batch_start(self, *_: Any) -> None:
            begun.append(time.thread_time())

    def run(count: int) -> list[float]:
        begun.clear()
        with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
            pl.Trainer(
                accelerator="cpu",
                max_steps=count + 1,
                log_every_n_steps=10,
                logger=CSVLogger(folder),
                callbacks=[Clock(), *callbacks("LightningCallback")],
                enable_checkpointing=False,
                enable_model_summary=False,
                enable_progress_bar=False,
            ).fit(model, torch.utils.data.DataLoader(rows, batch_size=8))
        return [after - before for before, after in pairwise(begun)]

    return run


def resnet() -> Steps:
    """A residual network in plain torch, its pictures from two data loader workers, whose start is not timed."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset[Any]):
        def __init__(self, count: int) -> None:
            self.count = count

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, index: int) -> Any:
            generator = torch.Generator().manual_seed(index)
            return torch.randn(3, 32, 32, generator=generator), index % 10

    class Residual(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
            self.short = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(y)) + self.short(x))

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), *[Residual(a, b, s) for a, b, s in ((16, 16, 1), (16, 32, 2), (32, 64, 2))],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def run(count: int) -> list[float]:
        times = []
        batches = iter(DataLoader(Pictures(32 * (count + 1)), batch_size=32, num_workers=2))
        next(batches)
        for _ in range(count):
            begin = time.perf_counter()
            x, y = next(batches)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
        return times

    return run


WORKLOADS: dict[str, Callable[[], Steps]] = {
    "micro": micro,
    "gpt": gpt,
    "small_step": small_step,
    "transformers": transformers,
    "resnet": resnet,
    "trainer": trainer,
    "lightning": lightning,
}

# steps in a block (the first of each is dropped: a recorder that just started learns all its stacks in it), rounds
SIZES = {
    "micro": (9, 21),
    "gpt": (7, 15),
    "small_step": (41, 25),
    "transformers": (7, 15),
    "resnet": (7, 11),
    "trainer": (41, 9),
    "lightning": (41, 9),
}
QUICK = {
    "micro": (3, 2),
    "gpt": (2, 1),
    "small_step": (3, 2),
    "transformers": (2, 1),
    "resnet": (2, 1),
    "trainer": (12, 2),
    "lightning": (12, 2),
}
