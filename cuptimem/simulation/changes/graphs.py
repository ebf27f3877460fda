"""Graphs that a backward pass keeps."""

import functools
import json
import os
import sys
from typing import Any

import torch

from cuptimem.simulation import backward
from cuptimem.simulation.changes.change import Change, patch
from cuptimem.simulation.places import call_place


class RetainGraph(Change):
    """Backward passes without retain_graph=True.

    value: their lines by file, as JSON; "" for all.
    """

    why_not = "no backward pass keeps a graph (retain_graph=True) that none runs again"

    def install(self) -> None:
        known: dict[str, list[int]] | None = json.loads(self.value) if self.value else None
        self._lines = None if known is None else {os.path.realpath(file): lines for file, lines in known.items()}
        for name in backward.PASSES:
            patch(torch.autograd, name, functools.partial(self._without, name))

    def _without(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def called(*arguments: Any, **keywords: Any) -> Any:
            place = call_place(sys._getframe(1))
            if backward.keeps_graph(name, arguments, keywords) and self._is_chosen(place):
                self.applied += 1
                self.saw_at(place, 1)
                arguments, keywords = backward.without_graph(name, arguments, keywords)  # type: ignore[assignment]
            return original(*arguments, **keywords)

        return called

    def _is_chosen(self, place: Any) -> bool:
        if self._lines is None:
            return True
        return place is not None and place[1] in self._lines.get(os.path.realpath(place[0]), ())
