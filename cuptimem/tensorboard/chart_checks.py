"""What the data of a picture must have so that the timeline's script can draw it: columns of equal length, and numbers
that refer to something."""

from itertools import accumulate
from typing import Any

from cuptimem.output.pages.timeline import GROUPINGS
from cuptimem.report.chart import PHASES
from cuptimem.tensorboard.shapes import (
    WIDE,
    Check,
    at,
    column,
    fail,
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

_DEVICES = 256
_CHARTS = 8  # of a device: the script's work grows with them
_LEAKS = 5000
_ADVICE = 100


def check_chart(chart: Any) -> None:
    _CHART(chart)
    if chart.get("stackedBy", "line") not in GROUPINGS:  # older ones have none
        fail("is stacked by what it does not have")
    advice = chart.get("advice", [])  # older ones have none of this either
    at("advice", listed(_PROPOSAL, _ADVICE), advice)
    at("adviceNote", text, chart.get("adviceNote", ""))
    if chart["phases"] != list(PHASES):
        fail("has phases that have no colour")
    frames, stacks, contributors, groups = (chart[name] for name in ("frames", "stacks", "contributors", "groups"))
    _table("frames", frames, {"file", "line", "library"}, {"function", "source", "module"})
    at("frames", _refers("file", len(chart["files"])), frames)
    for stack in stacks:
        at("stacks", column(0, len(frames["line"]) - 1), stack)
    _table("contributors", contributors, {"stack", "origin", "leak", *GROUPINGS}, {"operator", "savedBy"})
    for name, most in (("stack", len(stacks)), ("origin", len(stacks)), ("leak", len(chart["leaks"]))):
        at("contributors", _refers(name, most, -1), contributors)
    for name in GROUPINGS:
        at("contributors", _refers(name, len(groups[name])), contributors)
    for leak in chart["leaks"]:
        at("leaks", whole(-1, len(stacks) - 1), leak["stack"])
        at("leaks", whole(-1, len(groups["line"]) - 1), leak["line"])
    for one in advice:
        at("advice", whole(-1, len(groups["line"]) - 1), one["line"])
    _table("resident", chart["resident"], {"time", "bytes"})
    at("host", listed(fields(role=text), _ROLES), chart.get("host", []))  # older ones have none
    for one in chart.get("host", []):
        _table("host", one, {"time", "bytes"})
    if chart["opening"] is not None and not 0 <= chart["opening"][0] < chart["opening"][1] <= chart["duration"]:
        fail("opens outside of its time")
    for device in chart["devices"]:
        _device(chart, device)


def _table(name: str, table: Any, numbers: set[str], words: set[str] | frozenset[str] = frozenset()) -> None:
    """Columns of equal length."""
    for key in sorted(numbers | words):
        at(f"{name}.{key}", _WHOLE if key in numbers else texts, table.get(key))
    if len({len(table[key]) for key in numbers | words}) > 1:
        at(name, fail, "has columns of different lengths")


def _refers(name: str, number: int, least: int = 0) -> Check:
    """Each number of a column is a place in a table of so many rows. least -1: or none."""
    return lambda table: at(name, column(least, number - 1), table[name])


def _device(chart: dict[str, Any], device: dict[str, Any]) -> None:
    steps = device["steps"]
    _table("steps", steps, {"index", "loop", "begin", "length", "peak"})
    at("steps", _refers("loop", len(device["loops"])), steps)
    at("steps.begin", _WHOLE, list(accumulate(steps["begin"])))
    _table("used", device["used"], {"time", "bytes"})
    for oom in device["ooms"]:
        at("ooms.stack", whole(-1, len(chart["stacks"]) - 1), oom["stack"])
    for part in device["charts"]:
        _part(chart, part)


def _part(chart: dict[str, Any], part: dict[str, Any]) -> None:
    """One stretch of time of one device."""
    intervals, entries, blocks = part["intervals"], part["entries"], part["blocks"]
    table = {**intervals, **{f"phase {number}": made for number, made in enumerate(intervals["phases"])}}
    phases = {f"phase {number}" for number in range(len(chart["phases"]))}
    _table("intervals", table, {"begin", "highTime", "low", "high", "reserved", "allocated", "freed", *phases})
    at("intervals.begin", _WHOLE, list(accumulate(intervals["begin"])))
    _table("entries", entries, {"contributor", "interval", "high", "end", "allocated", "freed"})
    at("entries.contributor", column(0, len(part["contributors"]) - 1), list(accumulate(entries["contributor"])))
    at("entries", _refers("interval", len(intervals["begin"])), entries)
    known = len(chart["contributors"]["line"])
    at("chart.contributors", column(0, known - 1), part["contributors"])
    _table("blocks", blocks, {"address", "bytes", "begin", "end", "contributor", "step", "endStep"})
    at("blocks", _refers("contributor", known), blocks)


_whole = whole()
_WHOLE = column(1 - WIDE, WIDE - 1)
_OBJECT = fields()
_ROLES = 16


def _pair(value: Any) -> None:
    listed(_whole, 2)(value)
    if len(value) < 2:
        fail("has no two times")


_PART = fields(
    begin=_whole,
    end=_whole,
    hidden=_whole,
    intervals=fields(phases=listed(_WHOLE, 16)),
    contributors=_WHOLE,
    entries=_OBJECT,
    blocks=_OBJECT,
    leastBlock=_whole,
    leastSurvivor=_whole,
)

_DEVICE = fields(
    name=text,
    start=_whole,
    end=_whole,
    peak=fields(bytes=_whole, time=_whole, step=optional(_whole)),
    reservedPeak=optional(_whole),
    charts=listed(_PART, _CHARTS),
    used=_OBJECT,
    loops=texts,
    steps=_OBJECT,
    ooms=listed(fields(time=_whole, requested=number, allocated=number, stack=_whole, step=optional(_whole)), 1 << 16),
)

_LEAK = fields(
    verdict=flag,
    kind=text,
    device=text,
    bytes=_whole,
    alive=text,
    rate=number,
    estimated=flag,
    firstStep=_whole,
    lastStep=_whole,
    loop=text,
    where=text,
    function=text,
    source=text,
    reason=text,
    why=text,
    line=_whole,
    stack=_whole,
)

_PROPOSAL = fields(technique=text, device=text, saves=text, where=text, line=_whole, write=text, cost=text)

_CHART = fields(
    duration=whole(0),
    opening=optional(_pair),
    complete=flag,
    caveats=listed(text, 1000),
    compacted=optional(fields(begin=_whole, end=_whole, events=_whole)),
    counted=text,
    devices=listed(_DEVICE, _DEVICES),
    resident=_OBJECT,
    leaks=listed(_LEAK, _LEAKS),
    phases=texts,
    frames=_OBJECT,
    files=texts,
    stacks=listed(_WHOLE, 1 << 17),
    contributors=_OBJECT,
    groups=fields(**{name: rows(1 << 17, texts, texts) for name in GROUPINGS}),
)
