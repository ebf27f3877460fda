"""Only a loader's largest batches run: found on the host, before the first one is asked for.

Each DataLoader over a dataset with indices makes one pass over what its sampler gives, without recording it, and keeps
the indices of the batches with the most bytes in tensors: padded to its longest sequence, a batch is as large as that.
These are then all that the loader has, the largest first, in each epoch. It makes them itself again, as it would. What
is reserved is a lower bound: batches of all lengths leave more in PyTorch's cache than the largest ones alone.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from cuptimem.errors import own
from cuptimem.sizes import text

_SECONDS = 60.0  # of a pass; what comes behind them is not looked at
_DEPTH = 8  # of containers in a batch


class Longest:
    """Installed once, when torch.utils.data.dataloader was imported."""

    def __init__(self, torch: ModuleType, core: Any, most: int) -> None:
        """most: batches of each loader. core: cuptimem._core."""
        self._torch = torch
        self._core = core
        self._most = most
        self._said: dict[str, None] = {}

    def said(self) -> list[str]:
        """For the note of the process, a line for each kind of loader."""
        return list(self._said)

    def install(self, dataloader: Any) -> None:
        loader = dataloader.DataLoader
        given = loader._index_sampler.fget
        kinds = dataloader._DatasetKind

        def index_sampler(one: Any) -> Any:
            sampler = given(one)
            if one._dataset_kind != kinds.Map:
                self._say(one, "is a stream: its batches come as they are")
                return sampler
            # An attribute of its own, that its __setattr__ does not know.
            chosen = one.__dict__.get("_cuptimem_longest")
            if chosen is None or chosen[0] is not sampler:
                try:
                    found = self._core.call_unrecorded(self._longest, one, sampler, kinds)
                except own(Exception) as error:  # a data set that makes samples in a worker alone, for one
                    self._say(one, f"its batches come as they are: {type(error).__name__} where they were looked at")
                    found = sampler
                chosen = one.__dict__["_cuptimem_longest"] = (sampler, found)
            return chosen[1]

        loader._index_sampler = property(index_sampler)

    def _longest(self, loader: Any, sampler: Any, kinds: Any) -> list[Any]:
        fetcher = kinds.create_fetcher(
            loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        restore = self._random_states(loader)
        end = time.monotonic() + _SECONDS
        largest: list[tuple[int, int, Any]] = []
        sizes: list[int] = []
        is_whole = True
        try:
            for number, indices in enumerate(sampler):
                sizes.append(self._bytes(fetcher.fetch(indices)))
                heapq.heappush(largest, (sizes[-1], -number, indices))
                if len(largest) > self._most:
                    heapq.heappop(largest)
                is_whole = time.monotonic() < end
                if not is_whole:
                    break
        finally:
            restore()
        largest.sort(key=lambda one: one[:2], reverse=True)
        if sizes:
            middle = sorted(sizes)[len(sizes) // 2]
            of = f"{len(sizes):,} batches" if is_whole else f"the first {len(sizes):,} batches, all in {_SECONDS:g} s"
            self._say(
                loader,
                f"{len(largest)} of {of} ran, the largest: {text(largest[0][0])} where half have at most "
                f"{text(middle)}; those between may leave more in PyTorch's cache",
            )
        return [indices for _, _, indices in largest]

    def _random_states(self, loader: Any) -> Callable[[], None]:
        """What puts them back: a sampler draws from them, and so may a data set."""
        numpy = sys.modules.get("numpy.random")
        torch, python = self._torch.get_rng_state(), random.getstate()
        array = None if numpy is None else numpy.get_state()
        own_state = None if loader.generator is None else loader.generator.get_state()

        def restore() -> None:
            self._torch.set_rng_state(torch)
            random.setstate(python)
            if numpy is not None:
                numpy.set_state(array)
            if own_state is not None:
                loader.generator.set_state(own_state)

        return restore

    def _bytes(self, value: Any, depth: int = 0) -> int:
        if isinstance(value, self._torch.Tensor):
            return int(value.nbytes) if value.layout is self._torch.strided else 0
        if depth == _DEPTH or isinstance(value, (str, bytes, type)):
            return 0
        if isinstance(value, Mapping):
            return sum(self._bytes(one, depth + 1) for one in value.values())
        if isinstance(value, Sequence):
            return sum(self._bytes(one, depth + 1) for one in value)
        try:
            return sum(self._bytes(one, depth + 1) for one in vars(value).values())
        except own(TypeError):  # a number; an object without attributes
            return int(getattr(value, "nbytes", 0))

    def _say(self, loader: Any, what: str) -> None:
        self._said[f"DataLoader of {type(loader.dataset).__qualname__}, batch size {loader.batch_size}: {what}"] = None
