"""Waits, when a program is through, until PyTorch's threads for backward passes sleep.

Such a thread, one for each device, drops the last references of a backward pass some time after backward() has
returned, and takes the GIL for it. If Python is being finalized by then, CPython before 3.14 ends the thread in the
middle of C++, and the process aborts ("terminate called without an active exception",
github.com/pytorch/pytorch/issues/38228). On a busy machine, and most of all on a simulated device, whose kernels take
no time, a program that ends soon after its last step meets this. Standard library that Python has loaded by itself
only.
"""

import os
import sys
import time

_NAME = "Name:\tpt_autograd_"  # as PyTorch names them; nothing is waited for in one that does not
_LIMIT = 1.0  # seconds: one may be at work for good
_PAUSE = 0.002
_ASLEEP = "State:\tS"
_TOLD = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def wait() -> None:
    """Returns when two looks in a row find each of them asleep where it was before, or after a second."""
    if "torch" not in sys.modules:
        return
    give_up = time.monotonic() + _LIMIT
    before: list[list[str]] = []
    while True:
        now = _look()
        if not now or (now == before and all(thread[1].startswith(_ASLEEP) for thread in now)):
            return
        if time.monotonic() > give_up:
            return
        before = now
        time.sleep(_PAUSE)  # without the GIL, which is what such a thread may be waiting for


def _look() -> list[list[str]]:
    """Of each such thread its number, its state and how often it has been switched to, as the kernel writes them."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:  # no /proc: nothing can be known
        return []
    found = []
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/status", encoding="ascii", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:  # it has just ended
            continue
        if lines and lines[0].startswith(_NAME):
            found.append([thread, *(line for line in lines if line.startswith(_TOLD))])
    return found
