"""What programs of test_cupti_thread*.py begin with."""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem import _core

__all__ = [
    "Any",
    "Path",
    "_core",
    "ctypes",
    "cuptimem",
    "driver",
    "os",
    "report",
    "soon",
    "state",
    "sys",
    "time",
    "cupti_threads",
]


def cupti_threads() -> int:
    """Threads of ours that call CUPTI."""
    found = 0
    for task in os.listdir("/proc/self/task"):
        try:
            found += Path(f"/proc/self/task/{task}/comm").read_text().strip() == "cuptimem-cupti"
        except OSError:
            continue  # it has ended
    return found


def state() -> list[Any]:
    found = _core.cupti_state()
    return [found["mode"], found["reason"]]


def soon(holds: Callable[[], Any]) -> bool:
    """Whether it becomes true within a minute: a busy machine may leave a thread without a turn for seconds."""
    until = time.monotonic() + 60
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True


def driver(path: str = "a.cmem") -> dict[str, str]:
    """What a trace says of the driver level."""
    meta = _core.trace_meta(path)
    return {key.removeprefix("driver."): value for key, value in meta.items() if key.startswith("driver")}


def report(**found: Any) -> None:
    print(json.dumps(found), flush=True)
