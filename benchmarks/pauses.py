"""The longest steps of a recording, and what made them, in CPU of the program's thread: python -m benchmarks pauses.

One program, among so many objects, trains bare and recorded by turns; so a busy machine changes little. Each kind of
walk over living objects is timed by the thread's own clock, one slice at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_PROGRAM = """
import json, sys, time
import cuptimem, torch
from cuptimem.objects import slices
from cuptimem.record import holder_search, source_text

objects, seconds, blocks = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
others = [[number] for number in range(objects)]
torch.set_num_threads(1)
taken = {}

def timed(owner, name, kind):
    original = getattr(owner, name)
    def call(*arguments, **named):
        began = time.thread_time()
        try:
            return original(*arguments, **named)
        finally:
            kept = kind or "slice: " + arguments[0]
            taken[kept] = max(taken.get(kept, 0), time.thread_time() - began)
    setattr(owner, name, call)

timed(slices, "_slice", "")
timed(holder_search, "_analysis", "  of the search: reading the recording")
timed(holder_search, "find", "  of the search: the search")
timed(source_text, "supply", "source lines")

def train():
    nn = torch.nn
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16)) for _ in range(blocks)))
    optimizer = torch.optim.AdamW(model.parameters())
    losses, steps, began = [], [], time.monotonic()
    while time.monotonic() < began + seconds:
        step = time.thread_time()
        loss = model(torch.randn(4, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)  # a leak, to be searched for
        steps.append(time.thread_time() - step)
        time.sleep(0.004)
    return sorted(steps)

train()
bare = train()
with cuptimem.profile() as profile:
    taken.clear()
    recorded = train()
    slices_taken = dict(taken)
print(json.dumps({"bare": bare[-8:], "recorded": recorded[-8:], "median": recorded[len(recorded) // 2],
                  "kinds": slices_taken, "leaks": len(profile.report.leaks)}))
"""


def measured(quick: bool) -> Iterator[tuple[str, list[float]]]:
    """What was taken, and its seconds: the longest first."""
    some, many = 6, 400  # of three modules each, and one that has them
    sizes = ((10_000, some), (300_000, some), (3_000_000, some), (10_000, many))
    for objects, blocks in sizes[:1] if quick else sizes:
        command = [sys.executable, "-c", _PROGRAM, str(objects), "1" if quick else "10", str(blocks)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["leaks"], "nothing was searched for"
        of = f"{objects:,} objects, {4 * blocks + 1:,} modules"
        for how in ("bare", "recorded"):
            yield f"{of}, the longest steps {how}", found[how][::-1]
        yield f"{of}, a step recorded, median", [found["median"]]
        for kind, seconds in found["kinds"].items():
            yield f"{of}, longest {kind}", [seconds]
