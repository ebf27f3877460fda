"""python -m benchmarks.host: the CPU time of a tree sample, per process and per MiB.

Each row is a process that sleeps, read a number of times: CPU time of the reading thread, the lowest of all readings.
"""

from __future__ import annotations

import os
import subprocess
import sys

from cuptimem import _core

_TIMES = 30
_SIZES = (0, 64, 256, 1024)  # MiB
_TEXT = "import sys; block = bytearray(b'x') * (int(sys.argv[1]) << 20); print(flush=True); sys.stdin.read()"


def microseconds(pid: int) -> float:
    """Of a sample with pages and files."""
    samples = [_core.tree_now(pid) for _ in range(_TIMES)]
    return min(one[1] for one in samples if one is not None) / 1e3


def main() -> None:
    machine = sum(name.isdecimal() for name in os.listdir("/proc"))
    print(f"{machine} processes on the machine")
    for mib in _SIZES:
        command = [sys.executable, "-c", _TEXT, str(mib)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdin is not None
            process.stdout.readline()
            print(f"{mib:>6} MiB: {microseconds(process.pid):>8,.0f} us")
            process.stdin.close()


if __name__ == "__main__":
    main()
