"""When to go on after os.fork.

From 3.12 on, os.fork warns if the process has more than one thread, and counts them (depending on the version) before
or after the handlers of os.register_at_fork. A program with one thread of its own must not get that warning because of
ours, so ours starts again only when os.fork has returned to the line that called it.
"""

import _thread
import os
import sys

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_waiting: "list[_Waiting]" = []
_callback: "Any" = None  # the C function that Python calls; it must live as long as Python may call it


class _Waiting:
    def __init__(self, frame: "FrameType", function: "Callable[[], None]") -> None:
        self.frame = frame
        self.instruction = frame.f_lasti
        self.function = function

    def is_back(self, top: "FrameType | None") -> bool:
        """Whether the call of os.fork is over. While a handler runs, its frame stands on the caller's, and the caller
        has not moved."""
        if top is self.frame or self.frame.f_lasti != self.instruction:
            return True
        while top is not None:
            if top is self.frame:
                return False
            top = top.f_back
        return True


def go_on(caller: "FrameType | None", function: "Callable[[], None]") -> None:
    """Calls the function, if need be once `caller`, which is in os.fork, has got its result."""
    # Another thread than the main one: there are several, so the warning comes with or without ours.
    if sys.version_info < (3, 12) or caller is None or _thread.get_native_id() != os.getpid():
        function()
        return
    waiting = _Waiting(caller, function)
    _waiting.append(waiting)  # before asking: the answer may come at once
    if not _ask() and waiting in _waiting:
        _waiting.remove(waiting)
        function()


def _ask() -> bool:
    """Has Python call us in the main thread, between two instructions. False: it has no way or no room to do that."""
    global _callback
    try:
        import ctypes
    except ImportError:  # a Python without libffi
        return False
    if _callback is None:
        _callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run)
    return bool(ctypes.pythonapi.Py_AddPendingCall(_callback, None) == 0)


def _run(_: object) -> int:
    top = sys._getframe().f_back
    ready = [waiting for waiting in _waiting if waiting.is_back(top)]
    for waiting in ready:
        _waiting.remove(waiting)
    if _waiting and not _ask():
        ready += _waiting
        _waiting.clear()
    for waiting in ready:
        waiting.function()
    return 0


def forget() -> None:
    """In a forked child nothing of this goes on."""
    _waiting.clear()
