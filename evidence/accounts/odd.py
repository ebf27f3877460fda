"""python -m evidence.accounts.odd NAME DEVICE FOLDER: a program that is hard to account for. Prints its own sizes,
and what cuptimem says at the end and at the peak."""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cuptimem
from evidence.accounts.run import by_cuptimem
from tests.on_device.simulated.ending import leave

STEPS = 8


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 256), nn.Linear(256, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)))


def size(tensors: Any) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def train(model: nn.Module, optimizer: Any, steps: int = STEPS) -> None:
    for _ in range(steps):
        model.zero_grad()
        model(torch.ones(16, 64)).sum().backward()
        if optimizer is not None:
            optimizer.step()


def deleted() -> tuple[Any, dict[str, int]]:
    """Nothing of it is there when the profile ends."""
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    own = size(model.parameters())
    states = size(value for state in optimizer.state.values() for value in state.values())
    return None, {"parameter": own, "optimizer state": states}


class Tagged(torch.Tensor):
    """A subclass of which nothing is special but its class."""


def subclasses() -> tuple[Any, dict[str, int]]:
    model = Mlp()
    for layer in (model.one, model.two):
        layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Tagged))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    own = size(model.parameters())
    return (model, optimizer), {"parameter": own, "gradient": own}


def meta_and_fake() -> tuple[Any, dict[str, int]]:
    """Tensors without memory beside a model that has some."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        big = nn.Linear(100_000, 100_000)
    with FakeTensorMode():
        fake = nn.Linear(10_000, 10_000)
    model = Mlp()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    own = size(model.parameters())
    return (big, fake, model), {"parameter": own, "gradient": own}


def raising_hooks() -> tuple[Any, dict[str, int]]:
    """A step in two fails in forward, a step in three in backward."""
    model, calls = Mlp(), [0]

    def fails(every: int) -> None:
        calls[0] += 1
        if calls[0] % every == 0:
            raise ValueError("a hook of the program")

    model.one.register_forward_hook(lambda *_: fails(2))
    model.two.register_full_backward_hook(lambda *_: fails(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    failed = 0
    for _ in range(STEPS):
        try:
            train(model, optimizer, 1)
        except ValueError:
            failed += 1
    assert 0 < failed < STEPS
    calls[0] = 0
    train(model, optimizer, 1)
    own = size(model.parameters())
    return (model, optimizer), {"parameter": own, "gradient": own}


class Momentum:
    """An optimizer that is not torch.optim's."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.velocity: list[torch.Tensor] = []

    @torch.no_grad()
    def step(self) -> None:
        if not self.velocity:
            self.velocity = [torch.zeros_like(parameter) for parameter in self.parameters]
        for parameter, velocity in zip(self.parameters, self.velocity, strict=True):
            velocity.mul_(0.9).add_(parameter.grad)
            parameter.sub_(velocity, alpha=0.1)


def other_optimizer() -> tuple[Any, dict[str, int]]:
    model = Mlp()
    optimizer = Momentum(model.parameters())
    train(model, optimizer)
    own = size(model.parameters())
    return (model, optimizer), {"parameter": own, "gradient": own, "kept": size(optimizer.velocity)}


def no_step() -> tuple[Any, dict[str, int]]:
    model = Mlp()
    train(model, None)
    own = size(model.parameters())
    return model, {"parameter": own, "gradient": own}


def no_pass() -> tuple[Any, dict[str, int]]:
    model = Mlp()
    return model, {"parameter": size(model.parameters())}


def models_in_every_step() -> tuple[Any, dict[str, int]]:
    """What no walk has seen is unknown, and nothing else."""
    for _ in range(40):
        model = Mlp()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    own = size(model.parameters())
    return model, {"parameter": own, "gradient": own}


def main() -> None:
    _, name, _, folder = sys.argv
    with cuptimem.profile(Path(folder, "odd.cmem")) as window:
        kept, own = globals()[name]()
        gc.collect()
    report = window.report
    said = {what: by_cuptimem(report.contents(what, "cpu")) for what in ("end", "peak")}
    print(json.dumps({"own": own, **said, "problems": report.environment.get("problems", "")}))


if __name__ == "__main__":
    main()
    leave()
