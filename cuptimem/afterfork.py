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
    from types import FrameType, ModuleType

_waiting: "list[_Waiting]" = []


class _Waiting:
    def __init__(self, core: "ModuleType", frame: "FrameType", function: "Callable[[], None]") -> None:
        self.core = core
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


def when_back(core: "ModuleType", caller: "FrameType | None", function: "Callable[[], None]") -> bool:
    """Calls the function once `caller`, which is about to fork, has got its result. Asked for before the fork: what is
    run after it may be interrupted, by an exception out of a signal handler, before its first line.

    False: it cannot be told when that is, or need not: in another thread than the main one the warning comes with or
    without ours. Then the function is to be called after the fork.
    """
    if caller is None or _thread.get_native_id() != os.getpid():
        return False
    waiting = _Waiting(core, caller, function)
    _waiting.append(waiting)
    if core.main_thread_soon(_run):
        return True
    _waiting.remove(waiting)
    return False


def _run() -> None:
    top = sys._getframe().f_back
    for waiting in [one for one in _waiting if one.is_back(top)]:
        waiting.function()
        _waiting.remove(waiting)
    if _waiting and not _waiting[0].core.main_thread_soon(_run):  # no room to ask again
        for waiting in list(_waiting):
            waiting.function()
            _waiting.remove(waiting)


def forget() -> None:
    """In a forked child nothing of this goes on."""
    _waiting.clear()
