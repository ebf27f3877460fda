"""The timeline's data for the Memory page: that of `cuptimem timeline`, coarser, in the program's own steps."""

from typing import Any

from cuptimem.output.pages import timeline
from cuptimem.report.chart import Span
from cuptimem.report.model import Report

# A cycle's file stays small whatever the cycle's length: it is written while a training waits.
_FEW = 2  # devices, whose pictures are as fine as this; those of more are coarser, so that all together stay as large


def _span(devices: int, intervals: int, entries: int, blocks: int) -> Span:
    share = max(1, -(-devices // _FEW))
    return Span(intervals=intervals // max(1, share // 2), entries=entries // share, blocks=max(16, blocks // share))


_STEPS = ("step", "endStep", "firstStep", "lastStep", "index")  # keys of steps' numbers; -1 and null: none


def of(report: Report, first_step: int) -> dict[str, Any]:
    """For cuptimemTimeline() in a page's script. The trace is read again. Raises Error."""
    overview, fine = (_span(len(report.devices), *most) for most in ((512, 1 << 14, 512), (256, 1 << 13, 512)))
    found: dict[str, Any] = _shifted(timeline.data(report, overview=overview, fine=fine), first_step)
    return found


def _shifted(part: Any, first_step: int, key: str = "") -> Any:
    if isinstance(part, dict):
        return {name: _shifted(inner, first_step, name) for name, inner in part.items()}
    if key in _STEPS:
        if isinstance(part, list):
            return [_shifted(inner, first_step, key) for inner in part]
        return part + first_step if isinstance(part, int) and part >= 0 else part
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return [_shifted(inner, first_step) for inner in part]
    return part
