"""`cuptimem export --to memory-viz`, read back: every figure of blocks, lines and segments is the recording's."""

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.report import snapshots
from cuptimem.report.load import analyze
from cuptimem.report.model import Report
from tests.unit.snapshot.made import SEGMENT, MiB, event, frame, snapshot, training

TABLES = ("end", "allocated")
OTHER = SEGMENT + 64 * MiB


def figures(report: Report) -> dict[str, dict[str, Any]]:
    return {
        device.name: {
            "peak": device.peak.bytes,
            "start": device.start,
            "end": device.end,
            "allocations": device.allocations,
            "allocated": device.allocated,
            "requested": device.requested_peak,
            "reserved": device.reserved_peak,
            "ooms": [(oom.requested, *((f.file, f.line) for f in oom.stack)) for oom in device.ooms],
        }
        for device in report.devices
    }


def lines(report: Report, what: str) -> dict[str, Counter[Any]]:
    """Bytes and blocks by the whole stack, of each device."""
    found: dict[str, Counter[Any]] = {}
    for device in report.devices:
        contents = report.contents(what, device.name)
        rows = found[device.name] = Counter()
        for one in contents.contributors:
            stack = tuple((frame.file, frame.line, frame.function) for frame in one.stack)
            rows[stack, "bytes"] += one.bytes
            rows[stack, "blocks"] += one.count
    return found


def held(report: Report) -> list[tuple[Any, ...]]:
    """What segments hold, at the peak and at the end."""
    return [
        (
            *(one.device, one.what, one.reserved, one.allocated, one.requested, one.segments_total),
            *(one.largest_free_block, one.empty_cache_returns, one.expandable_returns),
            [(segment.address, segment.size, segment.allocated, segment.largest_free) for segment in one.segments],
        )
        for one in report.fragmentations
    ]


def same(trace: Path, folder: Path, lacking: str = "") -> None:
    """The figures read back are those recorded, but for what the format has no place for (docs/exports.md)."""
    target = folder / "viz.pickle"
    recorded = analyze(str(trace), tables=TABLES)
    recorded.export("memory-viz", target)
    back = analyze(str(target), tables=TABLES)
    expected = figures(recorded)
    if lacking == COMPACTED:
        for device, known in expected.items():
            rest = recorded.contents("allocated", device)
            assert rest.rest_count > 0
            known["allocated"] -= rest.rest_bytes
            known["allocations"] -= rest.rest_count
    assert figures(back) == expected
    assert (held(back) == held(recorded)) == (lacking != OVERLAPPING)
    assert lacking in back.environment.get("snapshot.missing", "")
    for what in ("peak", *TABLES):
        assert lines(back, what) == lines(recorded, what)


RECORDED = sorted((Path(__file__).parents[2] / "golden" / "traces").glob("*.cmem"))
COMPACTED, OVERLAPPING = "are compacted", "left out: they overlap others"
LACKING = {"hand-folded": COMPACTED, "hand-folded-side": COMPACTED, "hand-lost": OVERLAPPING}


@pytest.mark.parametrize("trace", RECORDED, ids=lambda path: path.stem)
def test_every_golden_trace(trace: Path, tmp_path: Path) -> None:
    same(trace, tmp_path, LACKING.get(trace.stem, ""))


PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters())
kept = []
for step in range(3):
    loss = model(torch.ones(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.ones(100, step + 1))
"""


@pytest.mark.torch
def test_a_recording_of_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    script = compile(PROGRAM, str(tmp_path / "program.py"), "exec")
    with cuptimem.profile(str(path)):
        exec(script, {"__name__": "program"})
    same(path, tmp_path)


def test_recordings_of_devices(tmp_path: Path) -> None:
    other = [
        event("segment_alloc", OTHER, 20 * MiB, 1_000_000, [frame(4)]),
        event("alloc", OTHER, 19 * MiB + 5, 1_000_100, [frame(5)]),
        event("oom", 0, 1 << 40, 1_000_200, [frame(6)]),
    ]
    some = training(6)
    late = training(6)
    late["device_traces"] = [late["device_traces"][0][20:]]
    for number, data in enumerate((some, late, snapshot([], [some["device_traces"][0], other]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "made.pickle").write_bytes(pickle.dumps(data))
        snapshots.convert(str(folder / "made.pickle"), str(folder / "made.cmem"))
        same(folder / "made.cmem", folder)
