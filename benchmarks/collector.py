"""python -m benchmarks.collector [--rounds N]

What the collector spends on an event, in instructions of its thread: valgrind counts them, so that the result is the
same on an idle and on a busy machine. Needs gcc and valgrind; no PyTorch. Two streams of events: `tiny` is one small
operation after the other (an allocation and its free), `training` has autograd nodes as well.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import callgrind

ROOT = Path(__file__).resolve().parents[1]
REPLAYED = ("blocks", "driver_join", "driver_map", "driver_map_events", "driver_totals", "group_totals", "nodes")
FLAGS = ("-std=gnu11", "-g", "-O2", "-fno-strict-aliasing")  # as setup.py has them
STREAMS = ("tiny", "training")


def compile_program(target: Path) -> None:
    sources = [
        Path(__file__).with_suffix(".c"),
        *(ROOT / f"tests/unit/capture/{name}.c" for name in ("frames_double", "connect")),
    ]
    for room in ("base", "trace", "capture", "compact", "recover"):
        sources += (ROOT / "csrc" / room).glob("*.c")
    sources += (ROOT / "csrc/heap" / f"{name}.c" for name in REPLAYED)
    subprocess.run(["gcc", *FLAGS, *map(str, sources), "-o", str(target), "-lpthread"], check=True)


def measure(program: Path, folder: Path, stream: str, rounds: int) -> tuple[int, Counter[str]]:
    rings = folder / "rings"
    rings.mkdir(exist_ok=True)
    counts = folder / stream
    events = callgrind.run([str(program), str(folder / "t.cmem"), str(rings), stream, str(rounds)], counts)
    _, collector = callgrind.by_thread(counts)  # the first thread publishes the events
    return int(events), collector


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collector", description=__doc__)
    parser.add_argument("--rounds", type=int, default=128, help="of 4,096 events each")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compile_program(folder / "program")
        for stream in STREAMS:
            events, spent = measure(folder / "program", folder, stream, rounds)
            print(f"{stream}: {sum(spent.values()) / events:.0f} instructions an event, of {events:,} events")
            for function, count in spent.most_common(12):
                print(f"  {count / events:6.1f}  {function}")


if __name__ == "__main__":
    main()
