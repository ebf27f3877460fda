"""python -m evidence.gpu.facts NAME: that program on whatever device is there; prints as JSON what its allocator
did.

Addresses differ from run to run, so events name a block by its segment's number and its offset in it.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import torch

from tests.on_device.simulated.ending import leave
from tests.on_device.simulated.programs import PROGRAMS, Program

_STATS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "requested_bytes.all.current",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "allocation.all.allocated",
    "segment.all.allocated",
    "num_alloc_retries",
    "num_ooms",
)


class Facts:
    """Is the check of a program: collects, judges nothing."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.checkpoints: list[dict[str, Any]] = []

    def __call__(self, label: str, *, quiet: bool = False, held: int = 0) -> None:
        torch.cuda.synchronize()
        for index in range(self.program.devices):
            stats = torch.cuda.memory_stats(index) if self.program.back_end != "uncached" else {}
            self.checkpoints.append(
                {"label": label, "device": index, **{name: stats.get(name, 0) for name in _STATS if name in stats}}
            )


def events(trace: list[dict[str, Any]]) -> list[list[Any]]:
    """[action, bytes, stream's number, segment's number, offset] of each entry of one device's history."""
    segments: dict[int, tuple[int, int]] = {}  # address -> number, bytes
    made = 0
    streams: dict[int, int] = {}
    found = []
    for entry in trace:
        action = entry["action"]
        if action in ("snapshot", "free_completed"):  # the latter's moment is the device's, not the program's
            continue
        address, size = entry.get("addr", 0), entry["size"]
        if action in ("segment_alloc", "segment_map"):
            segments[address] = (made, size)
            made += 1
        inside = next((start for start, (_, length) in segments.items() if start <= address < start + length), None)
        number, offset = (segments[inside][0], address - inside) if inside is not None else (-1, 0)
        stream = streams.setdefault(entry.get("stream", 0), len(streams))
        found.append([action, size, stream, number, offset])
        if action in ("segment_free", "segment_unmap"):
            segments.pop(address, None)  # part of one may be unmapped: then it keeps its number
    return found


def main() -> None:
    program = PROGRAMS[sys.argv[1]]
    facts = Facts(program)
    recorded = program.back_end in ("native", "expandable")
    if recorded:
        torch.cuda.memory._record_memory_history("all", context=None)
    importlib.import_module(f"tests.on_device.simulated.programs.{program.name}").main(facts)
    history: list[list[list[Any]]] = []
    if recorded:
        traces = torch.cuda.memory._snapshot()["device_traces"]
        history = [events(traces[index]) for index in range(program.devices)]
    print(json.dumps({"program": program.name, "checkpoints": facts.checkpoints, "events": history}))
    leave()


if __name__ == "__main__":
    main()
