"""Work on living objects that is done in slices, one after each of the program's steps, so that no step waits for all.

A task is a generator. Between two slices it holds no object of the program's, for that would live longer than it does
without us: it holds weak references, or addresses that it looks up again. What has died meanwhile is left out.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from cuptimem import _core

_FREE_SECONDS = 0.05  # of the processor, that slices may take in all ...
_SHARE = 0.005  # ... at first; then they take such a part of the time

_tasks: deque[tuple[str, Iterator[None]]] = deque()
_spent = 0.0
_began = 0.0


def start() -> None:
    """Forgets what is left."""
    global _spent, _began
    _tasks.clear()
    _spent, _began = 0.0, time.monotonic()


def add(name: str, task: Iterator[None]) -> None:
    """Does its first slice now, and one after each step until it ends. A task of this name that is not done is left."""
    for one in list(_tasks):
        if one[0] == name:
            with contextlib.suppress(ValueError):  # another thread has taken it
                _tasks.remove(one)
    _slice(name, task)


def go_on() -> None:
    """One slice of what is left, if they have not taken too much yet."""
    if not _tasks:
        return
    if _spent < _FREE_SECONDS + _SHARE * (time.monotonic() - _began):
        try:
            task = _tasks.popleft()
        except IndexError:  # another thread has taken the last one
            return
        _slice(*task)
    else:
        _core.walks_more()


def _slice(name: str, task: Iterator[None]) -> None:
    global _spent
    began = time.thread_time()
    try:
        next(task)
        _tasks.append((name, task))
    except StopIteration:
        pass
    finally:
        _spent += time.thread_time() - began
    if _tasks:
        _core.walks_more()
