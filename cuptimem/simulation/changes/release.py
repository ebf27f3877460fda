"""Names that hold a step's results until the next step has made new ones."""

import ctypes
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change
from cuptimem.simulation.places import is_library


class Release(Change):
    """del, behind each step, of the program's variables that hold results of its models.

    They go when the first model is called behind a step, so that all that reads them behind it has done so. What is in
    lists and in objects of the program stays.
    """

    why_not = "no variable of the program holds a result of a step when the next one begins"

    def install(self) -> None:
        self._stepped = False
        register_optimizer_step_post_hook(self._note)
        calls.around(self._release)

    def _note(self, *_: object) -> None:
        self._stepped = True

    def _release(self, _: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not self._stepped:
            return
        self._stepped = False
        given = {id(one) for one in (*arguments, *keywords.values())}
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not is_library(frame.f_code.co_filename):
                self._release_in(frame, given)
            frame = frame.f_back

    def _release_in(self, frame: FrameType, given: set[int]) -> None:
        names = frame.f_locals
        for name, value in list(names.items()):
            if id(value) not in given and _is_result(value):
                names[name] = None
                self.applied += 1
        if sys.version_info < (3, 13) and names is not frame.f_globals:  # there f_locals is a copy
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _is_result(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.grad_fn is not None
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return any(isinstance(one, torch.Tensor) and one.grad_fn is not None for one in members)
