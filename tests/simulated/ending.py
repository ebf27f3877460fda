"""How a program ends that may have run a backward pass on a device a moment ago."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def leave() -> NoReturn:
    """Ends the process with 0, without Python's own end.

    PyTorch's device thread of autograd drops the last references of a finished backward pass some time after backward()
    has returned, and takes the GIL for it. If Python is being finalized by then, CPython before 3.14 ends the thread in
    the middle of C++, which aborts the process ("terminate called without an active exception"). On a busy machine a
    program whose last statement is a backward pass meets this more often than not, on whatever device.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
