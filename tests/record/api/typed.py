"""What a type checker makes of decorated functions: checked by `make lint`, never run."""

from collections.abc import Iterator
from typing import assert_type

import cuptimem


@cuptimem.profile
def train(batch: int, *, name: str = "") -> float:
    return float(batch)


@cuptimem.profile("run.cmem", max_size="2G")
def named(batch: int) -> list[int]:
    return [batch]


@cuptimem.profile()
async def later(batch: int) -> str:
    return str(batch)


@cuptimem.profile
def batches(count: int) -> Iterator[int]:
    yield count


class Trainer:
    @cuptimem.profile
    def step(self, batch: int) -> str:
        return str(batch)

    @staticmethod
    @cuptimem.profile
    def static(batch: int) -> str:
        return str(batch)

    @cuptimem.profile("run.cmem")
    @classmethod
    def make(cls, batch: int) -> str:
        return str(batch)


async def use(trainer: Trainer) -> None:
    assert_type(train(1, name="a"), float)
    assert_type(train.profile, cuptimem.Profile)
    train("a")  # type: ignore[arg-type]
    assert_type(named(1), list[int])
    assert_type(await later(1), str)
    assert_type([*batches(2)], list[int])
    assert_type(trainer.step(1), str)
    assert_type(Trainer.step(trainer, 1), str)
    assert_type(trainer.step.profile.report.peak, cuptimem.Peak)
    trainer.step("a")  # type: ignore[arg-type]
    assert_type(Trainer.static(1), str)
    assert_type(Trainer.make(1), str)
    assert_type(trainer.make(1), str)
    cuptimem.profile(nothing=1)  # type: ignore[call-overload]
