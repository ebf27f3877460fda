"""Waits at the end of a program until PyTorch's threads for backward passes sleep.

Such a thread, one for each device, drops the last references of a backward pass some time after backward() has
returned, and takes the GIL for it. If Python is being finalized by then, CPython before 3.14 ends the thread in the
middle of C++, and the process aborts ("terminate called without an active exception",
github.com/pytorch/pytorch/issues/38228). On a busy machine, and most of all on a simulated device, where kernels
take no time, a program that ends soon after its last step meets this. A thread that one of them started has its name,
too. Imports nothing that Python has not loaded by itself.
"""

import os
import sys
import time

from cuptimem.errors import own

_NAME = b"Name:\tpt_autograd_"  # as PyTorch names them; nothing is waited for in one that does not
_ASLEEP = b"State:\tS"
_TOLD = (b"State:", b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")
_LIMIT = 1.0  # seconds: one may be at work for good
_PAUSE = 0.002


def wait() -> None:
    """Returns when two polls in a row find each of them asleep where it was before, or after a second.

    A thread that sleeps in a lock or in the driver is not waited for.
    """
    if "torch" not in sys.modules:
        return
    give_up = time.monotonic() + _LIMIT
    before: list[bytes] = []
    for _ in range(int(_LIMIT / _PAUSE)):  # the program may have put another clock in the place of time's
        now = _look()
        if not now or (now == before and all(_ASLEEP in thread for thread in now)) or time.monotonic() > give_up:
            return
        before = now
        time.sleep(_PAUSE)  # without the GIL, which is what such a thread may be waiting for


def _look() -> list[bytes]:
    """Number, state and count of context switches of each such thread, as the kernel writes them."""
    try:
        threads = os.listdir("/proc/self/task")
    except own(OSError):  # no /proc: nothing can be known
        return []
    found = []
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/status", "rb") as file:
                lines = file.read().splitlines()
        except own(OSError):  # it has just ended
            continue
        if lines and lines[0].startswith(_NAME):
            found.append(b" ".join([thread.encode(), *(line for line in lines if line.startswith(_TOLD))]))
    return found
