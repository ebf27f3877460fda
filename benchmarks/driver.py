"""What the driver level adds to a memory call and to a launch on the simulated device: beyond a CUPTI client that is
called for the same, is given the same records, and does nothing.

python -m benchmarks.driver WHAT TIMES ROUNDS prints JSON. Needs no PyTorch; runs with the device preloaded.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("driver.c")
# function of driver.c, bytes, callbacks of a pair
WHAT = {"cudaMalloc": ("malloc", 4096, 2), "cudaMallocAsync": ("async", 4096, 2), "launch": ("launch", 0, 1)}
# A record costs the simulated device some 10 µs, in which 100 ns are not to be seen; so callbacks are measured without,
# where each allocation is unwound to find its library: more than with records.
MODES = ("bare", "empty client", "cuptimem", "empty client, records", "cuptimem, records")
FRAMES = 30


def library(folder: Path) -> Any:
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    path = folder / "libbench.so"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True, env=plain)
    found = ctypes.CDLL(str(path))
    for name in ("malloc", "async", "launch"):
        function = getattr(found, f"bench_{name}")
        function.argtypes, function.restype = (ctypes.c_size_t, ctypes.c_int), ctypes.c_double
    return found


def deep(levels: int, call: Callable[[], float]) -> float:
    """From so many Python frames further down."""
    return call() if levels <= 1 else deep(levels - 1, call)


def succeeded(what: str, error: int) -> None:
    if error != 0:
        raise SystemExit(f"{what} failed with {error}")


def measure(what: str, times: int, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of the calling thread for each pair or launch, of blocks that follow each other."""
    import cuptimem
    from cuptimem import _core

    name, size, _ = WHAT[what]
    launches = name == "launch"
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as temporary:
        folder = Path(temporary)
        lib = library(folder)
        run = getattr(lib, f"bench_{name}")

        def block() -> float:
            run(size, max(times // 10, 100))  # the first of a recording learns its stack
            each = float(deep(FRAMES, lambda: run(size, times)))
            if each < 0:
                raise SystemExit(f"{what} was refused")
            return each

        block()
        start = _core.cupti_start
        for number in range(rounds):
            found["bare"].append(block())
            for records, suffix in ((False, ""), (True, ", records")):
                succeeded("subscribing", lib.bench_subscribe(int(launches), int(records)))
                found[f"empty client{suffix}"].append(block())
                succeeded("unsubscribing", lib.bench_unsubscribe())
                path = folder / f"{number}.cmem"
                _core.cupti_start = lambda kernels, activity, *more, on=records: start(kernels, on, *more)
                with cuptimem.profile(path, kernels=launches):
                    if _core.cupti_state()["mode"] != "callbacks":
                        raise SystemExit(f"the driver level is {_core.cupti_state()}")
                    found[f"cuptimem{suffix}"].append(block())
                _core.cupti_start = start
                path.unlink()
    return found


def main() -> None:
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))


if __name__ == "__main__":
    main()
