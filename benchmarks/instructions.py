"""python -m benchmarks.instructions [WORKLOAD ...] [--functions N]

What recording adds, in instructions that valgrind counts, so that the result is the same on an idle and on a busy
machine: of the program's own thread, and of all others (bare they have none). `micro` is one allocation with its free,
30 frames deep; `small_step` is a training step that is all Python. Both are run bare and recorded; only steps after the
first ones are counted. Needs gcc, valgrind with its headers, and PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import callgrind
from benchmarks.workloads import WORKLOADS

INNER = {"micro": 2000, "small_step": 1}  # that a step of the workload is made of
STEPS = {"micro": 10, "small_step": 20}
WARM = {"micro": 1, "small_step": 40}  # behind the searches of the first steps
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def program(name: str, trace: str, marks: str) -> None:
    """Runs under valgrind. Without a trace it is bare."""
    mark = ctypes.CDLL(marks)
    steps = WORKLOADS[name]()
    with contextlib.ExitStack() as stack:
        if trace:
            import cuptimem

            stack.enter_context(cuptimem.profile(trace))
        # From one line: the stacks of another are all new.
        for count, reached in ((WARM[name], mark.start), (STEPS[name], mark.stop)):
            steps(count)
            reached()


def measure(name: str, folder: Path, recorded: bool) -> tuple[Counter[str], Counter[str]]:
    counts = folder / f"{name}-{recorded}"
    trace = str(folder / f"{name}.cmem") if recorded else ""
    command = [sys.executable, "-m", "benchmarks.instructions", "--program", name, trace, str(folder / "marks.so")]
    callgrind.run(command, counts, ["--instr-atstart=no"], env={**os.environ, **ENVIRONMENT})
    return callgrind.by_thread(counts)


def show(what: str, spent: Counter[str], units: int, functions: int) -> None:
    print(f"  {sum(spent.values()) / units:12,.1f}  {what}")
    for function, count in sorted(spent.items(), key=lambda item: -abs(item[1]))[:functions]:
        print(f"    {count / units:12,.1f}  {function}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=", ".join(INNER))
    parser.add_argument("--functions", type=int, default=12, help="shown of each kind of thread (default: 12)")
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        program(*arguments.program)
        return
    if unknown := set(arguments.names) - set(INNER):
        parser.error(f"no workload {min(unknown)!r}; there are: {', '.join(INNER)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = str(Path(__file__).with_suffix(".c"))
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", str(folder / "marks.so")], check=True)
        for workload in arguments.names or INNER:
            bare, _ = measure(workload, folder, False)
            own, others = measure(workload, folder, True)
            own.subtract(bare)
            units = STEPS[workload] * INNER[workload]
            print(f"{workload}: {sum(bare.values()) / units:,.1f} instructions bare; recording adds")
            show("in the program's own thread", own, units, arguments.functions)
            show("in other threads", others, units, arguments.functions)


if __name__ == "__main__":
    main()
