"""Which files this process or another opens, pipes included, as the kernel reports them (inotify)."""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_OPEN = 0x20  # IN_OPEN


@contextmanager
def opened(files: Iterable[Path]) -> Iterator[set[Path]]:
    """Gives a set that has, once the block has ended, those of these files that were opened in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert queue >= 0, os.strerror(ctypes.get_errno())
    found: set[Path] = set()
    try:
        watched = {libc.inotify_add_watch(queue, os.fsencode(file), _OPEN): file for file in files}
        assert -1 not in watched, os.strerror(ctypes.get_errno())
        yield found
        try:
            events = os.read(queue, 1 << 20)
        except BlockingIOError:  # none
            events = b""
        at = 0
        while at < len(events):
            watch, _, _, length = struct.unpack_from("<iIII", events, at)
            found.add(watched[watch])
            at += 16 + length
    finally:
        os.close(queue)
