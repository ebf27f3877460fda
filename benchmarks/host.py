"""python -m benchmarks running: the CPU time of a tree sample, by the size of the process.

Each row is a process that sleeps, read a number of times: CPU seconds of the reading thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from cuptimem import _core

_TIMES = 30
_SIZES = (0, 64, 256, 1024)  # MiB
_TEXT = "import sys; block = bytearray(b'x') * (int(sys.argv[1]) << 20); print(flush=True); sys.stdin.read()"


def measured(quick: bool) -> Iterator[tuple[str, list[float]]]:
    """With pages and files."""
    machine = sum(name.isdecimal() for name in os.listdir("/proc"))
    for mib in _SIZES[: 2 if quick else None]:
        command = [sys.executable, "-c", _TEXT, str(mib)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdin is not None
            process.stdout.readline()
            samples = [_core.tree_now(process.pid) for _ in range(_TIMES)]
            process.stdin.close()
        what = f"host sample, {mib} MiB, {machine} processes on the machine"
        yield what, [one[1] / 1e9 for one in samples if one is not None]
