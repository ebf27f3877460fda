"""Small trainings, each with switches that change it by hand as a technique would."""

import functools
import gc
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import cuptimem
from cuptimem.report.model import Report

STEPS = 4


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Words(nn.Module):
    """Its parameters are large beside a small batch."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change
        self.embedding = nn.Embedding(500, 128)
        self.blocks = nn.ModuleList(Residual(128) for _ in range(5))
        self.head = nn.Linear(128, 500)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.change == "checkpoint" else block(x)
        return self.head(x)


class Picture(nn.Module):
    """Its peak is of activations."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.stages = nn.ModuleList(self.stage() for _ in range(4))
        self.last = nn.Linear(16, 10)

    def stage(self) -> nn.Module:
        leaky = nn.LeakyReLU(0.1, inplace=self.change == "in_place")
        return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), leaky, nn.Conv2d(16, 16, 1))

    def forward(self, x):
        x = self.first(x)
        for stage in self.stages:
            y = checkpoint(stage, x, use_reentrant=False) if self.change == "checkpoint" else stage(x)
            x = F.relu(x + y)
        return self.last(x.mean((2, 3)))


class Views(nn.Module):
    """One module looks at one view after the other, by two calls on one line."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change
        layers = [part for _ in range(6) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.Tanh())]
        self.eye = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, nn.Conv2d(16, 16, 1))
        self.last = nn.Linear(16, 10)

    def forward(self, x):
        views = x.chunk(6, 2)
        eye = functools.partial(checkpoint, self.eye, use_reentrant=False) if self.change == "checkpoint" else self.eye
        seen = [view for one, other in zip(views[::2], views[1::2], strict=True) for view in (eye(one), eye(other))]
        return self.last(torch.stack([one.mean((2, 3)) for one in seen]).mean(0))


class Attending(nn.Module):
    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change
        self.first = nn.Linear(16, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 192) for _ in range(3))
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            heads = layer(x).view(*x.shape[:2], 3, 4, 16)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            if self.change == "fused_attention":
                y = F.scaled_dot_product_attention(q, k, v)
            else:
                y = torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v
            x = x + y.transpose(1, 2).reshape(x.shape)
        return self.last(x.mean(1))


def words(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(0, 500, (batch, 64))
    return x, x.flatten()


def pictures(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 3, 24, 24), torch.randint(0, 10, (batch,))


def rows(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, 256, 16), torch.randint(0, 10, (batch,))


KINDS: dict[str, tuple[Callable[[str], nn.Module], Callable[[int], tuple[torch.Tensor, torch.Tensor]]]] = {
    "words": (Words, words),
    "pictures": (Picture, pictures),
    "views": (Views, pictures),
    "attending": (Attending, rows),
}


def train(kind: str, batch: int, change: str = "", *, momentum: bool = False, zeroed: bool = False) -> None:
    make, data = KINDS[kind]
    torch.manual_seed(0)
    model = make(change)
    if change == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    elif momentum:
        optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=change == "fused")
    hooks = []
    if change == "step_in_backward":
        own = {one: torch.optim.AdamW([one], 1e-3) for one in model.parameters()}

        def step_now(parameter: torch.Tensor) -> None:
            own[parameter].step()
            own[parameter].zero_grad()

        hooks = [one.register_post_accumulate_grad_hook(step_now) for one in model.parameters()]
    for _ in range(STEPS):
        if change == "accumulate":
            for _ in range(2):
                x, y = data(batch // 2)
                F.cross_entropy(model(x).flatten(0, -2), y).div(2).backward()
            optimizer.step()
            optimizer.zero_grad()
            continue
        x, y = data(batch)
        output = model(x)
        loss = F.cross_entropy(output.flatten(0, -2), y)
        if change not in ("zero_grad_late", "set_to_none"):
            optimizer.zero_grad(set_to_none=not zeroed)
        if change == "release":
            del output
        loss.backward()
        if change != "step_in_backward":
            optimizer.step()
        if change in ("zero_grad_late", "set_to_none"):
            optimizer.zero_grad()
        if change == "release":
            del loss, x, y
    for hook in hooks:
        hook.remove()


class Decoded(Dataset[tuple[torch.Tensor, int]]):
    """Keeps each picture that it has decoded."""

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        if at not in self.kept:
            self.kept[at] = torch.randn(3, 24, 24)
        return self.kept[at], at % 10


def record_decoded(folder: Path, batch: int) -> Report:
    """Of two epochs of a data set that keeps what it has read."""
    gc.collect()
    torch.manual_seed(0)
    path = folder / f"decoded-{batch}.cmem"
    with cuptimem.profile(path, holders=False):
        model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 10))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        data = Decoded()
        for _ in range(2):
            for x, y in DataLoader(data, batch):
                loss = F.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return cuptimem.open(path)


class Square(torch.autograd.Function):
    """Its context is part of a cycle."""

    @staticmethod
    def forward(ctx, x):
        ctx.x, ctx.again = x, lambda: ctx.x.sum()
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.x


def record_cycles(folder: Path, collected: bool) -> Report:
    """Without automatic collection; collected: with one by hand in each step."""
    path = folder / f"cycles-{collected}.cmem"
    gc.collect()
    gc.disable()
    try:
        with cuptimem.profile(path, holders=False):
            layer = nn.Linear(64, 64)
            optimizer = torch.optim.SGD(layer.parameters(), 0.01)
            for _ in range(20):
                loss = Square.apply(layer(torch.randn(64, 64))).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if collected:
                    gc.collect()
    finally:
        gc.enable()
    return cuptimem.open(path)


def record(folder: Path, kind: str, batch: int, change: str = "", **more: bool) -> Report:
    """The report of a training with this change made by hand."""
    gc.collect()
    path = folder / f"{kind}-{batch}-{change or 'bare'}.cmem"
    with cuptimem.profile(path, holders=False):
        train(kind, batch, change, **more)
    return cuptimem.open(path)
