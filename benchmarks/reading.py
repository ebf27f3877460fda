"""python -m benchmarks.reading [--functions N] [--events A B] [memory] [instructions]

What reading a recording costs, in numbers that are the same on an idle and on a busy machine. `memory`: the highest
resident memory of a process that reads 300,000 blocks which stay alive, beyond that of one which reads as many records
of blocks that do not, for each block. `instructions`: what an event takes in the thread that replays and in the others,
as valgrind counts them between two synthetic trainings. Needs gcc and valgrind.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import callgrind
from benchmarks.synthetic import write_synthetic

LIVE = 300_000
ROOT = Path(__file__).resolve().parents[1]
READ = """\
import re, sys
from cuptimem import _core
def highest():
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", file.read())[1])
before = highest()
_core.analyze(sys.argv[1])
print(highest() - before)
"""


def write_blocks(path: Path, stay: bool) -> str:
    """As many records with blocks that all stay alive as with blocks that are freed at once: 50 lines, 7 sizes."""
    sys.path.insert(0, str(ROOT / "tests/unit/analysis"))
    import craft

    craft.Trace.library = craft.encoder()
    trace = craft.Trace()
    trace.mark(craft.SEEDED)
    for i in range(LIVE if stay else LIVE // 2):
        trace.alloc(4096 * (i + 1), 512 * (1 + i % 7), trace.line(1 + i % 50))
        if not stay:
            trace.free(4096 * (i + 1))
    return trace.write(path, per_batch=1 << 15)


def measure_memory(folder: Path) -> list[int]:
    """Bytes that a reading adds to the process: of blocks that are freed, and of those that stay."""
    paths = [write_blocks(folder / f"{stay}.cmem", stay) for stay in (False, True)]
    return [int(subprocess.check_output([sys.executable, "-c", READ, path], cwd=ROOT)) for path in paths]


def count(folder: Path, events: int) -> tuple[int, Counter[str], Counter[str]]:
    path = str(folder / "synthetic.cmem")
    written = write_synthetic(path, events)["events"]
    counts = folder / f"counts-{events}"
    callgrind.run([sys.executable, "-c", READ, path], counts, cwd=str(ROOT))
    return (written, *callgrind.by_thread(counts))


def measure_instructions(folder: Path, sizes: list[int], functions: int) -> None:
    few, *before = count(folder, sizes[0])
    many, *after = count(folder, sizes[1])
    for what, less, more in zip(("that replays", "that decodes"), before, after, strict=True):
        more.subtract(less)
        each = {function: spent / (many - few) for function, spent in more.items()}
        print(f"{sum(each.values()):10,.1f}  instructions an event in the thread {what}")
        for function in sorted(each, key=lambda function: -each[function])[:functions]:
            print(f"  {each[function]:10,.1f}  {function}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="memory | instructions", help="default: both")
    parser.add_argument("--functions", type=int, default=12, help="shown of each thread (default: 12)")
    parser.add_argument("--events", type=int, nargs=2, default=[400_000, 1_200_000], help="of the two trainings")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {"memory", "instructions"}:
        parser.error(f"no measure {min(unknown)!r}")
    names = arguments.names or ["memory", "instructions"]
    with tempfile.TemporaryDirectory() as name:
        if "memory" in names:
            few, many = measure_memory(Path(name))
            print(f"{(many - few) / LIVE:.1f} bytes for each of {LIVE:,} live blocks ({many:,} and {few:,})")
        if "instructions" in names:
            measure_instructions(Path(name), arguments.events, arguments.functions)


if __name__ == "__main__":
    main()
