"""Smaller and larger batches of the program's DataLoaders.

Without a DataLoader it is not known from outside where a batch is made: then nothing is applied.
"""

import functools
from typing import Any

import torch.utils.data as data
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from cuptimem.simulation.changes import stepping
from cuptimem.simulation.changes.change import Change, patch, refuse


class _Loaders(Change):
    """Gives DataLoaders another batch size when they are made."""

    why_not = "no batch comes from a DataLoader: give the program another batch size by hand"

    def install(self) -> None:
        self._done: set[int] = set()  # loaders' samplers that were changed: accelerate makes a second loader of one
        self._kept: list[Any] = []  # so that their ids stay theirs
        self._draws = 0
        patch(data.DataLoader, "__init__", self._sized)
        patch(_BaseDataLoaderIter, "__next__", self._drawn)
        stepping.around(self._step)

    def _drawn(self, original: Any) -> Any:
        def draw(this: Any) -> Any:
            self._draws += 1
            return original(this)

        return draw

    def _sized(self, original: Any) -> Any:
        @functools.wraps(original)  # Lightning reads its signature
        def init(this: Any, dataset: Any, batch_size: Any = 1, *arguments: Any, **keywords: Any) -> None:
            sampler: Any = keywords.get("batch_sampler")
            is_done = id(keywords.get("sampler")) in self._done or id(sampler) in self._done
            if sampler is None and isinstance(batch_size, int) and not is_done:
                batch_size = self._changed(batch_size)
            elif isinstance(getattr(sampler, "batch_size", None), int) and not is_done:
                sampler.batch_size = self._changed(sampler.batch_size)
            original(this, dataset, batch_size, *arguments, **keywords)
            made = [one for one in (this.batch_sampler, this.sampler) if one is not None]
            self._kept += made
            self._done.update(map(id, made))

        return init

    def _changed(self, size: int) -> int:
        new = self._size(size)
        self.applied += new != size
        return new

    def _size(self, size: int) -> int:
        raise NotImplementedError

    def _step(self, optimizer: Any, step: Any, arguments: Any, keywords: Any) -> Any:
        """Refuses where a loader was changed, but the batches of steps come from elsewhere."""
        if not self._draws and self._closure(arguments, keywords) is None:
            refuse(self.why_not)
        return step()

    @staticmethod
    def _closure(arguments: Any, keywords: Any) -> Any:
        return arguments[0] if arguments else keywords.get("closure")


class Batch(_Loaders):
    """Another batch size for each DataLoader that has the size of the first one."""

    def install(self) -> None:
        self._first: int | None = None
        super().install()

    def _size(self, size: int) -> int:
        if self._first is None:
            self._first = size
        return int(self.value) if size == self._first else size


class Accumulate(_Loaders):
    """Batches of a part of the size; steps and zero_grad only with each last part."""

    def install(self) -> None:
        self._parts = int(self.value)
        self._calls: dict[int, int] = {}  # steps that the program asked for, by optimizer
        super().install()
        for owner in (Optimizer, nn.Module):
            patch(owner, "zero_grad", self._with_last)

    def _size(self, size: int) -> int:
        return size // self._parts if size >= self._parts else size

    def _step(self, optimizer: Any, step: Any, arguments: Any, keywords: Any) -> Any:
        closure = self._closure(arguments, keywords)
        if stepping.is_one():
            return step()
        if not self._draws and closure is None:
            refuse(self.why_not)
        self._calls[id(optimizer)] = self._calls.get(id(optimizer), 0) + 1
        if self._calls[id(optimizer)] % self._parts == 0:
            return step()
        return stepping.loss_of(closure)

    def _with_last(self, original: Any) -> Any:
        def zero_grad(this: Any, *arguments: Any, **keywords: Any) -> None:
            if isinstance(this, Optimizer):
                ready = self._calls.get(id(this), 0) % self._parts == 0
            else:
                ready = all(calls % self._parts == 0 for calls in self._calls.values())
            if ready:
                original(this, *arguments, **keywords)

        return zero_grad
