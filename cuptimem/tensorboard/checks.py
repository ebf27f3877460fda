"""What a recording must have so that the page can show it: every field that the page or the plugin reads."""

from typing import Any

from cuptimem.errors import Error
from cuptimem.tensorboard.chart_checks import check_chart
from cuptimem.tensorboard.data import FORMAT, STEP_COLUMNS
from cuptimem.tensorboard.shapes import (
    EXACT,
    WIDE,
    Check,
    Wrong,
    column,
    fields,
    flag,
    listed,
    number,
    optional,
    rows,
    text,
    texts,
    whole,
)

_STEP = 1 << 52  # a browser can still add one


class Damaged(Error):
    """A file whose content cannot be shown, as long as it does not change."""

    unpacked = 0  # bytes that were unpacked to find that out


def check(data: Any) -> None:
    """Raises Damaged, one line that names the first field that is wrong."""
    if type(data) is not dict or type(data.get("format")) is not int:
        raise Damaged("it is not one of cuptimem's files")
    if data["format"] != FORMAT:
        later = data["format"] if 0 <= data["format"] < 1_000_000 else "of another kind"
        raise Damaged(f"it has format {later}, this cuptimem reads {FORMAT}: update cuptimem")
    try:
        _RECORDING(data)
    except Wrong as wrong:
        raise Damaged(f"it is damaged: {wrong.path.lstrip('.') or 'the file'} {wrong.what}") from None


_bytes = _ns = whole()
_sum = whole(1 - WIDE, WIDE - 1)  # over a whole recording
_count = whole(0, EXACT - 1)
_step = whole(-_STEP, _STEP)
_FRAME = {"where": text, "file": text, "line": whole(), "function": text, "code": text}


def _line(value: Any) -> None:
    _LINE(value)
    fields(category=text, parts=text)({"category": "", "parts": "", **value})  # older ones have none


_LINE = fields(**_FRAME, bytes=_bytes, count=_count, phase=text, module=text, below=text, stack=listed(text, 64))

_LEAK = {
    **_FRAME,
    "verdict": flag,
    "reason": text,
    "kind": text,
    "device": text,
    "bytes": _bytes,
    "estimated": flag,
    "count": _count,
    "bytes_per_step": number,
    "total_bytes_per_step": number,
    "relation": text,
    "first_step": _step,
    "last_step": _step,
    "loop": text,
}

_DEVICE = fields(
    name=text,
    start=_bytes,
    end=_bytes,
    peak=_bytes,
    peak_ns=_ns,
    peak_step=optional(_step),
    peak_blocks=_count,
    reserved_peak=optional(_bytes),
    allocated=_sum,
    allocations=_count,
    lines=listed(_line, 1000),
    notes=listed(text, 1000),
    rest=fields(lines=_count, bytes=_bytes, count=_count),
    timeline=rows(20_000, column(), column(), column(), column(gaps=True)),
)

_STEP_CHECKS: dict[str, Check] = {
    "step": column(-_STEP, _STEP),
    "loop": texts,
    "device": texts,
    "allocated": column(1 - WIDE, WIDE - 1),
    "freed": column(1 - WIDE, WIDE - 1),
    "reserved": column(gaps=True),
}

_RECORDING = fields(
    title=text,
    environment=fields(),
    caveats=listed(text, 1000),
    start_realtime_ns=whole(0, WIDE - 1),
    duration_ns=_ns,
    first_step=_step,
    clock=text,
    devices=listed(_DEVICE, 256),
    resident=rows(20_000, column(), column()),
    steps=rows(20_000, *(_STEP_CHECKS.get(name, column()) for name in STEP_COLUMNS)),
    steps_left_out=_count,
    leaks=listed(fields(**_LEAK, keeps=listed(fields(**_LEAK), 1000)), 1000),
    leaks_left_out=_count,
    leak_headline=text,
    ooms=listed(fields(), 1000),
    chart=optional(check_chart),
)
