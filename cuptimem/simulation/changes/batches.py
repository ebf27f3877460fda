"""Smaller and larger batches of the DataLoaders that an optimizer's steps learn from, without one of all.

A first run of the program finds out which these are: an evaluation keeps its batches, unless the size that is to be
replaced is given and no loader of training has it. One that is made again, as in
each epoch, is known by the lines that lead there. Without a DataLoader it is not known from outside where a batch is
made: then nothing is applied.
"""

import functools
import sys
from collections import Counter
from typing import Any

import torch
import torch.utils.data as data
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from cuptimem.simulation.changes import LOADERS, stepping
from cuptimem.simulation.changes.change import Change, patch, refuse
from cuptimem.simulation.makers import before_trainer
from cuptimem.simulation.places import Place, all_places, is_programs
from cuptimem.trainer_settings import Trainer


class _Loaders(Change):
    """Gives DataLoaders another batch size when they are made."""

    why_not = "no batch comes from a DataLoader: give the program another batch size by hand"

    def __init__(self, name: str, value: str, device: str) -> None:
        self._asked, is_known, chosen = value.partition(LOADERS)
        super().__init__(name, self._asked, device)
        self._is_known, self._is_all = bool(is_known), chosen == "*"
        self._chosen = {int(one) for one in chosen.split(",") if one} if not self._is_all else set[int]()
        self._numbers: dict[int, int] = {}  # by id of a sampler: its loader's. accelerate makes a second one of it
        self._kept: list[Any] = []  # so that their ids stay theirs
        self._places: dict[tuple[tuple[Place, ...], int], int] = {}  # the numbers of those that one place makes
        self._made: Counter[tuple[Place, ...]] = Counter()  # there, since one of them was drawn from
        self._resized: set[int] = set()  # ids of samplers
        self._drawn: set[int] = set()  # numbers
        self._sizes: dict[int, int] = {}  # by number, of batches
        self._drawn_now: set[int] = set()  # numbers, since the last step
        self._drawn_for: Counter[int] = Counter()  # by number: steps before which it was drawn from
        self._fed = 0  # steps before which anything was

    def install(self) -> None:
        patch(data.DataLoader, "__init__", self._sized)
        patch(_BaseDataLoaderIter, "__next__", self._drawing)
        stepping.around(self._step)

    def finish(self) -> None:
        if not self._is_known and self._drawn:
            often = [number for number, steps in sorted(self._drawn_for.items()) if 2 * steps >= self._fed]
            chosen = self._of_size(often) or self._of_size(sorted(self._drawn))
            if chosen:
                self.again = f"{self._asked}{LOADERS}{','.join(map(str, chosen))}"
            else:
                self.why_not = f"no DataLoader that the program draws from has batches of {self._replaced}"

    @property
    def _replaced(self) -> int | None:
        """The size of the loaders that get another one, where it is given."""
        return None

    def _of_size(self, numbers: list[int]) -> list[int]:
        return [one for one in numbers if self._replaced in (None, self._sizes.get(one))]

    def _drawing(self, original: Any) -> Any:
        def draw(this: Any) -> Any:
            found = original(this)  # not of one that is at its end
            number = self._numbers.get(id(this._index_sampler))
            if number is not None:
                self._drawn.add(number)
                self._made.pop(self._lines[number], None)
                if torch.is_grad_enabled():
                    self._drawn_now.add(number)
            return found

        return draw

    @property
    def _lines(self) -> list[tuple[Place, ...]]:
        return [place for place, _ in self._places]

    def _number(self) -> int:
        """Of a loader that the program makes now: the same for one that the same lines make when the one before has
        been in use."""
        place = tuple(one for one in all_places(sys._getframe(2)) if is_programs(one[0]))
        self._made[place] += 1
        return self._places.setdefault((place, self._made[place]), len(self._places))

    def _sized(self, original: Any) -> Any:
        @functools.wraps(original)  # Lightning reads its signature
        def init(this: Any, dataset: Any, batch_size: Any = 1, *arguments: Any, **keywords: Any) -> None:
            sampler: Any = keywords.get("batch_sampler")
            given = (self._numbers.get(id(one)) for one in (sampler, keywords.get("sampler")) if one is not None)
            known = next((one for one in given if one is not None), None)
            # A library makes another one of a loader that has its size already; the program writes the size again.
            is_libraries = known is not None and not is_programs(sys._getframe(1).f_code.co_filename)
            number = self._number() if known is None or not is_libraries else known
            found = batch_size if sampler is None else getattr(sampler, "batch_size", None)
            if isinstance(found, int) and not is_libraries:
                self._sizes[number] = found
            if (self._is_all or number in self._chosen) and not is_libraries:
                if sampler is None and isinstance(batch_size, int):
                    batch_size = self._changed(batch_size)
                elif isinstance(found, int):
                    if id(sampler) not in self._resized:
                        sampler.batch_size = self._changed(sampler.batch_size)
                    self._resized.add(id(sampler))
                else:
                    self.why_not = "a sampler of the program makes its batches: give it another size by hand"
            original(this, dataset, batch_size, *arguments, **keywords)
            made = [one for one in (this.batch_sampler, this.sampler) if one is not None]
            self._kept += made
            self._numbers.update((id(one), number) for one in made)

        return init

    def _changed(self, size: int) -> int:
        new = self._size(size)
        self.applied += new != size
        return new

    def _size(self, size: int) -> int:
        raise NotImplementedError

    def _step(self, optimizer: Any, step: Any, arguments: Any, keywords: Any) -> Any:
        """Refuses where the batches of steps do not come from DataLoaders."""
        self._feed(arguments, keywords)
        return step()

    def _feed(self, arguments: Any, keywords: Any) -> None:
        if not self._drawn and self._closure(arguments, keywords) is None:
            refuse(self.why_not)
        self._drawn_for.update(self._drawn_now)
        self._fed += bool(self._drawn_now)
        self._drawn_now.clear()

    @staticmethod
    def _closure(arguments: Any, keywords: Any) -> Any:
        return arguments[0] if arguments else keywords.get("closure")


class Batch(_Loaders):
    """Another batch size for each of these DataLoaders that has the size that it replaces: that which is given, or that
    of the first one."""

    def install(self) -> None:
        new, _, replaced = self.value.partition(":")
        self._new = int(new)
        self._first = int(replaced) if replaced else None
        super().install()

    @property
    def _replaced(self) -> int | None:
        return self._first

    def _size(self, size: int) -> int:
        if self._first is None:
            self._first = size
        return self._new if size == self._first else size


class Accumulate(_Loaders):
    """Batches of a part of the size; steps and zero_grad only with each last part. transformers' Trainer has settings
    for both."""

    def install(self) -> None:
        self._parts = int(self.value)
        self._calls: dict[int, int] = {}  # steps that the program asked for, by optimizer
        self._is_set = False  # in a Trainer's settings
        super().install()
        before_trainer("transformers", self._setting)
        for owner in (Optimizer, nn.Module):
            patch(owner, "zero_grad", self._with_last)

    def finish(self) -> None:
        if not self._is_set:
            super().finish()

    def _setting(self, trainer: Trainer, made: Any, keywords: dict[str, Any]) -> None:
        if made.per_device_train_batch_size >= self._parts:
            made.per_device_train_batch_size //= self._parts
            made.gradient_accumulation_steps *= self._parts
            self._is_set = True
            self.applied += 1

    def _size(self, size: int) -> int:
        return size // self._parts if size >= self._parts else size

    def _step(self, optimizer: Any, step: Any, arguments: Any, keywords: Any) -> Any:
        closure = self._closure(arguments, keywords)
        if stepping.is_one():
            return step()
        self._feed(arguments, keywords)
        if not self._is_known or self._is_set:
            return step()
        self._calls[id(optimizer)] = self._calls.get(id(optimizer), 0) + 1
        if self._calls[id(optimizer)] % self._parts == 0:
            return step()
        return stepping.loss_of(closure)

    def _with_last(self, original: Any) -> Any:
        def zero_grad(this: Any, *arguments: Any, **keywords: Any) -> None:
            if not self._is_known or self._is_set:
                ready = True
            elif isinstance(this, Optimizer):
                ready = self._calls.get(id(this), 0) % self._parts == 0
            else:
                ready = all(calls % self._parts == 0 for calls in self._calls.values())
            if ready:
                original(this, *arguments, **keywords)

        return zero_grad
