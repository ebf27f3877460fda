"""What a trainer's callback takes of the program's thread: python -m benchmarks.callback [trainer] [lightning]

CPU time inside of the callback's own methods, a step, with a log every 10 steps: a busy machine does not move it, as it
does the ratio of two runs. What a log waits is apart, by the clock.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import workloads
from cuptimem import integrations

STEPS = 100
METHODS = ("on_step_end", "on_log", "on_train_batch_start", "on_train_batch_end")


class Spent:
    """Nanoseconds in functions."""

    cpu = wall = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            cpu, wall = time.thread_time_ns(), time.monotonic_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.cpu += time.thread_time_ns() - cpu
                self.wall += time.monotonic_ns() - wall

        return call


def measure(name: str, folder: Path) -> str:
    spent = Spent()

    def callbacks(kind: str) -> list[Any]:
        callback = getattr(integrations, kind)(folder / f"{name}.cmem", summary=False)
        for method in METHODS:
            if hasattr(callback, method):
                setattr(callback, method, spent.around(getattr(callback, method)))
        return [callback]

    workloads.callbacks = callbacks
    run = workloads.WORKLOADS[name]()
    run(20)
    spent.cpu = spent.wall = 0
    step = statistics.median(run(STEPS))
    inside = spent.cpu / (STEPS + 1) / 1e9
    waits = spent.wall / (STEPS + 1) / 1e9 - inside
    found = f"{name}: step {step * 1e3:.1f} ms; in the callback {inside * 1e6:.0f} µs, {inside / step:.2%}"
    return f"{found}; waits {waits * 1e6:.0f} µs"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        print("\n".join(measure(name, Path(folder)) for name in sys.argv[1:] or ("trainer", "lightning")))


if __name__ == "__main__":
    main()
