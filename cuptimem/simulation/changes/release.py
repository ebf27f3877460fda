"""Variables that hold what nothing reads again."""

import ctypes
import sys
import threading
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cuptimem.simulation.changes.change import Change
from cuptimem.simulation.last_use import forget, unread


class Release(Change):
    """del of each of the program's variables behind its last use, as the bytecode of its function has it.

    What is in lists that are read again, and in objects of the program, stays.
    """

    why_not = "no variable of the program holds a tensor that is not read again"

    def install(self) -> None:
        self._main = threading.get_ident()
        mode: Any = _BeforeEach(self)
        mode.__enter__()

    def let_go(self) -> None:
        found = unread(sys._current_frames().get(self._main))
        frames: dict[FrameType, list[str]] = {}
        while found:
            name, _, frame, value = found.pop()
            if _has_tensors(value):
                frames.setdefault(frame, []).append(name)
            del value
        for frame, names in frames.items():
            variables = frame.f_locals
            variables.update(dict.fromkeys(names))
            if sys.version_info < (3, 13) and variables is not frame.f_globals:  # there f_locals is a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            forget(frame, variables)
            self.applied += len(names)


class _BeforeEach(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operator of the program."""

    def __init__(self, change: Release) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._change = change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._change.let_go()
        return func(*args, **(kwargs or {}))


def _has_tensors(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    members = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return any(isinstance(one, torch.Tensor) for one in members)
