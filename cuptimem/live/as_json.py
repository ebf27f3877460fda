"""A state as JSON: keys are added, never renamed or removed (docs/live.md)."""

from dataclasses import asdict
from typing import Any

from cuptimem.live.state import LiveDevice, LiveLine, LiveState
from cuptimem.report.stacks import function

SCHEMA = 1


def of(state: LiveState) -> dict[str, Any]:
    known = {name: getattr(state, name) for name in LiveState.__slots__ if name not in ("devices", "verdict")}
    return {
        "schema": SCHEMA,
        **known,
        "devices": [_device(one) for one in state.devices],
        "growth": _growth(state),
    }


def _device(one: LiveDevice) -> dict[str, Any]:
    names = ("device", "allocated", "blocks", "peak", "reserved", "used", "total", "others", "headroom")
    return {
        **{name: getattr(one, name) for name in names},
        "categories": one.categories,
        "lines": [_line(line) for line in one.lines],
        "steps": [asdict(step) for step in one.steps],
    }


def _line(line: LiveLine) -> dict[str, Any]:
    frame = line.frame
    return {
        "where": line.where,
        "file": frame.file if frame is not None else None,
        "line": frame.line if frame is not None else None,
        "function": function(frame) if frame is not None else None,
        "code": frame.source if frame is not None else None,
        "bytes": line.bytes,
        "blocks": line.blocks,
        "categories": dict(line.categories),
        "judged": list(line.judged),
    }


def _growth(state: LiveState) -> dict[str, Any] | None:
    verdict = state.verdict
    if verdict is None:
        return None
    return {
        "steps": verdict.steps,
        "bytes_per_step": verdict.growth,
        "growing": [asdict(one) for one in verdict.growing],
        "peaks": {
            device: {"step": verdict.peak_steps.get(device), "categories": dict(sums)}
            for device, sums in verdict.peaks.items()
        },
    }
