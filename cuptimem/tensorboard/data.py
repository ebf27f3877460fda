"""What the Memory page shows of one recording, prepared when the recording is at hand.

TensorBoard then needs neither the trace, which may have gigabytes, nor the C core, and may run on another machine.
"""

import os
from collections.abc import Iterable
from typing import Any

from cuptimem.output.text import leak_views, peak_views, views, words
from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.clock_views import counted_by
from cuptimem.output.text.part_views import in_a_line
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Contents, Device, Line, Report, Step, first_lines
from cuptimem.report.stacks import Frame

FORMAT = 1
SUFFIX = ".cuptimem.json.gz"
FOLDER = os.path.join("plugins", "cuptimem")

_LINES = 500  # of a peak; the others are one row
_STEPS = 5000  # from each end
_LEAKS = 200
_KEEPS = 20  # of what stands under a leak
_DEVICES = 256
_ALL_LINES = 4000  # of the peaks of all devices
_FRAMES = 24
_REMARKS = 100
_TEXT = 300  # characters of a name


def prepare(report: Report, first_step: int = 0, chart: object = None) -> dict[str, Any]:
    """Anything that JSON takes. Texts are printable and short; they are text, never markup."""
    title, *_ = views.heading(report)
    steps, left_out = _ends(report.steps.ended)
    lines = min(_LINES, _ALL_LINES // max(1, len(report.devices[:_DEVICES])))
    return {
        "format": FORMAT,
        "title": _text(title.text) if isinstance(title, Text) else "",
        "environment": {_text(key): _text(value) for key, value in sorted(report.environment.items())[:60]},
        "caveats": _lines_of_text(views.caveats(report)),
        "start_realtime_ns": report.start_realtime_ns,
        "duration_ns": report.duration_ns,
        "first_step": first_step,
        "clock": _text(counted_by(report.clock)),
        "devices": [_device(device, first_step, lines) for device in report.devices[:_DEVICES]],
        "resident": [[point.time_ns, point.bytes] for point in report.resident],
        "steps": [_step(step, first_step) for step in steps],
        "steps_left_out": left_out,
        "leaks": [_leak(leak, first_step) for leak in (*report.leaks, *report.suspects)[:_LEAKS]],
        "leaks_left_out": max(0, len(report.leaks) + len(report.suspects) - _LEAKS),
        "leak_headline": _headline(report),
        "ooms": [
            {
                "device": _text(oom.device),
                "time_ns": oom.time_ns,
                "requested": oom.requested,
                "allocated": oom.allocated,
                "step": _shifted(oom.step, first_step),
            }
            for oom in report.ooms[:_LEAKS]
        ],
        "chart": chart,
    }


def _text(text: str) -> str:
    return words.shortened(text, _TEXT)


def _lines_of_text(blocks: Iterable[Block]) -> list[str]:
    return [_text(block.text.removeprefix("! ")) for block in blocks if isinstance(block, Text)][:_REMARKS]


def _shifted(step: int | None, first_step: int) -> int | None:
    return None if step is None else first_step + step


def _headline(report: Report) -> str:
    """What the summary says of leaks, in one line."""
    if not report.steps:
        return "Leaks: not judged, no steps were seen"
    return next(iter(_lines_of_text(leak_views.short(report))), "")


def _ends(steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], int]:
    """The first and the last rows, and how many lie between."""
    if len(steps) <= 2 * _STEPS:
        return steps, 0
    return (*steps[:_STEPS], *steps[-_STEPS:]), len(steps) - 2 * _STEPS


def _device(device: Device, first_step: int, most: int) -> dict[str, Any]:
    shown, others = first_lines(device.peak.lines, most)
    known = peak_views.knows_categories(device.peak.contributors)
    return {
        "name": _text(device.name),
        "start": device.start,
        "end": device.end,
        "peak": device.peak.bytes,
        "peak_ns": device.peak.time_ns,
        "peak_step": _shifted(device.peak.step, first_step),
        "peak_blocks": device.peak.count,
        "reserved_peak": device.reserved_peak,
        "allocated": device.allocated,
        "allocations": device.allocations,
        "lines": [_line(line, device.peak, known) for line in shown],
        "notes": [],
        "rest": _rest(device.peak, others),
        "timeline": [[point.time_ns, point.low, point.high, point.reserved] for point in device.timeline],
    }


def _rest(peak: Contents, others: Iterable[Line]) -> dict[str, int]:
    """Everything that has no row, so that rows and this sum to the peak."""
    left = tuple(others)
    return {
        "lines": len(left),
        "bytes": peak.rest_bytes + sum(line.bytes for line in left),
        "count": peak.rest_count + sum(line.count for line in left),
    }


def _frame(frame: Frame | None) -> dict[str, Any]:
    if frame is None:
        return {"file": "", "line": 0, "function": "", "code": ""}
    return {
        "file": _text(frame.file),
        "line": frame.line,
        "function": _text(words.function(frame)),
        "code": _text(frame.source),
    }


def _line(line: Line, peak: Contents, known: bool) -> dict[str, Any]:
    """known: whether the categories of any line are."""
    largest = max(line.contributors, key=lambda one: one.bytes)
    below = largest.library_line
    return {
        "bytes": line.bytes,
        "count": line.count,
        "phase": line.phase,
        "where": _text(line.where),
        **_frame(line.frame),
        "category": peak_views.category(line.contributors) if known else "",
        "module": _text(largest.qualified or " › ".join(largest.modules)),
        "below": _text(below.place) if below is not None and below != line.frame else "",
        "parts": _text(in_a_line(line, peak)),
        "stack": [_text(f"{frame.place} {words.function(frame)}") for frame in largest.stack[:_FRAMES]],
    }


def _step(step: Step, first_step: int) -> list[Any]:
    """In the order of STEP_COLUMNS."""
    return [
        first_step + step.index,
        _text(step.loop),
        _text(step.device),
        step.begin_ns,
        step.end_ns,
        step.start,
        step.peak,
        step.end,
        step.allocated,
        step.freed,
        step.allocations,
        step.reserved,
    ]


STEP_COLUMNS = (
    "step",
    "loop",
    "device",
    "begin_ns",
    "end_ns",
    "start",
    "peak",
    "end",
    "allocated",
    "freed",
    "allocations",
    "reserved",
)


def _leak(leak: Leak, first_step: int) -> dict[str, Any]:
    return {
        "verdict": leak.reason == "",
        "undecided": leak.undecided,
        "reason": _text(leak.reason),
        "kind": leak.kind,
        "device": _text(leak.device),
        "bytes": leak.bytes,
        "estimated": leak.bytes_estimated,
        "count": leak.count,
        "bytes_per_step": leak.bytes_per_step,
        "total_bytes_per_step": leak.total_bytes_per_step,
        "relation": leak.relation,
        "first_step": first_step + leak.first_step,
        "last_step": first_step + leak.last_step,
        "loop": _text(leak.loop),
        "confidence": leak.confidence,
        "cause": leak.cause,
        "where": _text(leak.where),
        **_frame(leak.frame),
        "keeps": [_leak(one, first_step) for one in leak.keeps[:_KEEPS]],
    }
