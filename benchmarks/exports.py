"""python -m benchmarks.exports [EVENTS ...]

Size, time and peak memory of each export of a made-up training with so many events (1,000,000), and of reading it with
_core.Reader alone. Each in a process of its own. "whole file" is what pickle writes for the same memory-viz snapshot,
loaded and dumped whole: what a recorder that keeps its events in Python must hold.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.synthetic import write_synthetic
from cuptimem.output.text import words

FORMATS = ("chrome", "memory-viz", "speedscope", "pprof", "firefox", "collapsed", "csv", "json")

_EXPORT = """
import resource, sys, time
from cuptimem import _core
from cuptimem.output import exports
kind, trace, path = sys.argv[1:]
begin = time.process_time()
if kind == "reader":
    size = sum(len(batch) for batch in _core.Reader(trace))
elif kind == "whole file":
    import pickle
    with open(path, "rb") as file:
        whole = pickle.load(file)
    size = len(pickle.dumps(whole, protocol=4))
else:
    size = exports.export(trace, kind, path).bytes
print(size, time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def measure(kind: str, trace: Path, path: Path) -> tuple[int, float, int]:
    """Bytes of the file (of the reader: tuples), seconds of CPU, bytes of memory at most."""
    command = [sys.executable, "-c", _EXPORT, kind, str(trace), str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    size, seconds, peak = out.split()
    return int(size), float(seconds), int(peak)


def measured(events: int, kinds: Iterable[str]) -> Iterator[tuple[str, int, float, int]]:
    """Of each kind what measure() says."""
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        trace = Path(folder, "run.cmem")
        write_synthetic(str(trace), events)
        for kind in kinds:
            path = Path(folder, "memory-viz" if kind == "whole file" else kind)
            yield kind, *measure(kind, trace, path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description="What exports cost.")
    parser.add_argument("events", type=lambda text: int(float(text)), nargs="*", default=[1_000_000])
    parser.add_argument("--only", choices=("reader", *FORMATS, "whole file"), action="append")
    options = parser.parse_args()
    chosen = options.only or ["reader", *FORMATS, "whole file"]
    for events in options.events:
        print(f"{events:,} events")
        print(f"{'':12} {'file':>12} {'CPU':>9} {'memory':>12}")
        for kind, size, seconds, peak in measured(events, chosen):
            shown = f"{size:,} tuples" if kind == "reader" else words.size(size)
            print(f"{kind:12} {shown:>12} {seconds:7.1f} s {words.size(peak):>12}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
