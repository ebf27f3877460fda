"""What the search for holders costs, in seconds of CPU: python -m benchmarks holders.

A program with ten leaks of 50 blocks each among so many objects, and one without growth; each in a process of its own,
with and without the search.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.deadline import left

_PROGRAM = """
import sys, time
import cuptimem, torch
from cuptimem.record import recorder

objects, leaks, wanted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "with"
others = [[number] for number in range(objects)]
torch.ones(1)
makers = {}
for number in range(leaks):  # each with a line of its own
    exec(compile("\\n" * number + "def make(): return torch.ones(256)", "makers.py", "exec"), globals())
    makers[number] = make
kept = {number: [] for number in makers}
profile = cuptimem.profile(holders=wanted)
with profile:
    for step in range(50):
        torch.ones(256)
        for number, made in makers.items():
            kept[number].append(made())
        profile.step()
    began = time.process_time()
    recorder.close_window(profile._current().window)
    ended = time.process_time()
found = sum(bool(leak.holders) for leak in profile.report.leaks)
assert found == (leaks if wanted else 0), found
print(ended - began)
"""


def seconds(objects: int, leaks: int, wanted: bool) -> float:
    """Of the stop."""
    command = [sys.executable, "-c", _PROGRAM, str(objects), str(leaks), "with" if wanted else "without"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=left()).stdout)


def measured(quick: bool) -> Iterator[tuple[str, list[float], list[float]]]:
    """What was stopped, and the seconds with and without the search, taken in turn."""
    objects, times = (10_000, 1) if quick else (1_000_000, 5)
    for leaks, what in ((10, "10 leaks of 50 blocks"), (0, "no growth")):
        runs = [(seconds(objects, leaks, True), seconds(objects, leaks, False)) for _ in range(times)]
        yield f"stop, {what}, {objects:,} objects", [one for one, _ in runs], [one for _, one in runs]


if __name__ == "__main__":
    for what, searched, plain in measured("--quick" in sys.argv):
        print(f"{what}: {median(searched):.3f} s, without the search {median(plain):.3f} s")
