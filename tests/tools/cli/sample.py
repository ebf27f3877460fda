"""What _core.analyze returns, by hand: one device, three steps, frames of a file that the test writes."""

from pathlib import Path
from typing import Any

SOURCE = """\
import torch


def step(model, x):
    y = model(x)
    y.sum().backward()
"""

# Category, module and saved_by of a contributor of which nothing is known.
UNKNOWN = ("unknown", None, None)


def source_line(source: str, line: int) -> str:
    """As a recording has it."""
    lines = source.splitlines()
    return lines[line - 1] if line <= len(lines) else ""


def analysis(folder: Path) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text(SOURCE)
    linear = "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"
    module = "/usr/lib/python3/site-packages/torch/nn/modules/module.py"

    def frame(*row: Any) -> tuple[Any, ...]:
        return (*row, source_line(SOURCE, row[2]) if row[0] == str(script) else "")

    main = frame(str(script), "<module>", 9, 9, 0, 14, None, 0)
    line = frame(str(script), "step", 5, 5, 8, 16, None, 0)
    call = frame(module, "Module._wrapped_call_impl", 1500, 1500, 15, 60, "Linear", 0x7F01)
    inner = frame(linear, "Linear.forward", 134, 134, 15, 60, None, 0)
    backward = frame(str(script), "step", 6, 6, 4, 22, None, 0)
    stacks = {2: [inner, call, line, main], 3: [backward, main]}
    forward = (3000, 3, 2, 2, "forward", None, *UNKNOWN)
    charged = (1000, 1, 2, 3, "backward", "N5torch8autograd9generated14AddmmBackward0E", *UNKNOWN)
    before = (96, 1, 0, 0, "before start", None, "before start", None, None)
    steps = [
        {
            "index": i,
            "loop": "1",
            "device": "cpu",
            "begin_ns": i * 10_000_000,
            "end_ns": (i + 1) * 10_000_000,
            "peak_ns": i * 10_000_000 + 5,
            "start": 96,
            "peak": 4096 if i == 1 else 4000,
            "end": 96 + 8 * i,
            "allocated": 5000,
            "freed": 5000 - 8 * i,
            "allocations": 7,
            "contributors": [forward, charged],
            "rest": (96 if i == 1 else 0, 1 if i == 1 else 0),
        }
        for i in range(3)
    ]
    return {
        "schema": 3,
        "complete": True,
        "state": "complete",
        "reason": "",
        "meta": {"script": "train.py", "python": "3.11.7", "torch": "2.13.0", "pid": "42"},
        "lost": {"events": 0, "stacks": 0, "unknown_frees": 0, "replaced": 0, "seeds_skipped": 0},
        "start_realtime_ns": 1_700_000_000_000_000_000,
        "duration_ns": 30_000_000,
        "events": 42,
        "allocations": 21,
        "threads": 2,
        "devices": [
            {
                "device": "cpu",
                "start": 96,
                "peak": 4096,
                "peak_time_ns": 10_000_005,
                "peak_step": 1,
                "end": 112,
                "allocations": 21,
                "frees": 20,
                "allocated": 15_000,
                "freed": 14_984,
                "above": (4_000, 10_000_005, 1),
                "kept": 16,
                "reserved_peak": None,
                "requested_peak": None,
                "segments": None,
                "check": None,
                "contributors": [forward, charged, before],
                "ooms": [],
                "timeline": [(0, 96, 96, None), (10_000_000, 96, 4096, None)],
            }
        ],
        "rss": [(0, 100_000_000), (10_000_000, 120_000_000)],
        "steps": steps,
        "clock": {
            "kind": "optimizer",
            "where": (str(script), 8, "step"),
            "changes": [],
            "loops": [],
            "passed": None,
            "rate": None,
        },
        "host_reads": [],
        "survivors": [("cpu", 2, 16, 2, 1, 2)],
        "leaks": [],
        "suspects": [],
        "live_nodes": 0,
        "backward": {"bytes": 3000, "resolved": 3000, "accumulation": 0, "unresolved": 0},
        "stacks": stacks,
    }
