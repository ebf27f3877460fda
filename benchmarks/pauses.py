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
from cuptimem.record import holders, source_text

objects, seconds = int(sys.argv[1]), float(sys.argv[2])
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
timed(holders, "_analysis", "  of the search: reading the recording")
timed(holders, "find", "  of the search: the search")
timed(source_text, "supply", "source lines")

def train():
    layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16)) for _ in range(6)]
    model = torch.nn.Sequential(*layers)
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
    for objects in (10_000,) if quick else (10_000, 300_000, 3_000_000):
        command = [sys.executable, "-c", _PROGRAM, str(objects), "1" if quick else "10"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["leaks"], "nothing was searched for"
        for how in ("bare", "recorded"):
            yield f"{objects:,} objects, the longest steps {how}", found[how][::-1]
        yield f"{objects:,} objects, a step recorded, median", [found["median"]]
        for kind, seconds in found["kinds"].items():
            yield f"{objects:,} objects, longest {kind}", [seconds]
