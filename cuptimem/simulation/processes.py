"""Finds and kills the processes below a program that is ended: they must not outlive it."""

import os
import signal
import time
from collections.abc import Iterable, Mapping

_EXIT_SECONDS = 2.0  # for killed processes to be gone


def below(pids: Iterable[int]) -> dict[int, int]:
    """Living processes below these, each with its time of birth in ticks. What cannot be read is left out."""
    births: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, (parent, born) in _all().items():
        births[pid] = born
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    todo = list(pids)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found[pid] = births[pid]
                todo.append(pid)
    return found


def kill(known: Mapping[int, int]) -> None:
    """Kills those that still live and all below them, and waits a moment until they are gone.

    The time of birth shows whether a number belongs to another process by now.
    """
    end = time.monotonic() + _EXIT_SECONDS
    known = dict(known)
    while True:
        living = {pid: born for pid, born in known.items() if birth(pid) == born}
        if not living or time.monotonic() > end:
            return
        known = {**below(living), **living}
        for pid in known:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.01)


def _all() -> dict[int, tuple[int, int]]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = _stat(int(name))
            if seen is not None:
                found[int(name)] = seen
    return found


def birth(pid: int) -> int | None:
    """When a living process was started, in ticks."""
    seen = _stat(pid)
    return None if seen is None else seen[1]


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and time of birth; None where it is gone or dead already."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in "ZX" else (int(fields[1]), int(fields[19]))
