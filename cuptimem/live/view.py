"""A state as blocks of text: for one frame on standard output, and for the terminal."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cuptimem.live import sparks
from cuptimem.live.state import UNKNOWN, LiveDevice, LiveLine, LiveState
from cuptimem.output.text.blocks import CODE, LINE, Block, Column, Table, Text
from cuptimem.output.text.words import code, count, duration, file, plural, share, shortened, size

ORDERS = ("bytes", "blocks", "line")
_COLUMNS = 60  # of a curve, at most
_UNKNOWN = "not known yet"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is chosen of a state. device: one of them, None: all; rows: lines of code of each device."""

    device: str | None = None
    order: str = ORDERS[0]
    rows: int = 10
    columns: int = 80
    paused: bool = False


def blocks(state: LiveState, shown: Shown) -> list[Block]:
    found = [*head(state, shown), _devices(state)]
    chosen = [one for one in state.devices if shown.device in (None, one.device)]
    for device in chosen:
        found += [Text(), *_device(state, device, shown)]
    if not state.devices:
        found.append(Text("Nothing is allocated yet."))
    return found


def keys(known: Sequence[tuple[str, str]]) -> Table:
    return Table((Column("key"), Column("does", flexible=True)), tuple(known))


# -- the program ---------------------------------------------------------------------------------------------------


def head(state: LiveState, shown: Shown) -> list[Block]:
    parts = [shortened(os.path.basename(state.script) or os.path.basename(state.path), 60)]
    if state.pid is not None:
        parts.append(f"pid {state.pid}")
    parts.append(_how(state) + (", paused" if shown.paused else ""))
    if state.step is not None:
        parts.append(f"step {count(state.step)}" + (f" ({state.phase})" if state.phase else ""))
    elif state.steps:
        parts.append(plural(state.steps, "step"))
    if state.rate is not None and not state.ended:
        parts.append(f"{state.rate:.3g} steps a second")
    if state.age_ns is not None:
        parts.append(f"last event {duration(state.age_ns)} ago")
    found: list[Block] = [Text(" · ".join(parts), "title", breaks=" · ")]
    found += (Text(f"! {warning}", "warning", prose=True) for warning in _warnings(state))
    found.append(Text(_growth(state), prose=True))
    return found


def _how(state: LiveState) -> str:
    if state.state == "recording":
        return "recording" if state.process == "runs" else f"recording, the process {state.process}"
    return {"complete": "has ended", "recovered": "was killed"}.get(state.state, "ended without its last events")


def _warnings(state: LiveState) -> list[str]:
    found = []
    if state.reason and state.ended:
        found.append(shortened(state.reason, 200))
    if state.refused:
        found.append(f"{plural(state.refused, 'request')} for memory refused: cuptimem peak --at oom")
    if state.lost:
        found.append(f"{plural(state.lost, 'event')} lost: figures may be wrong by what these were")
    return found


def _growth(state: LiveState) -> str:
    verdict = state.verdict
    if verdict is None or verdict.growth is None:
        return "Growth: not judged yet"
    of = f"{plural(verdict.steps, 'step')} judged"
    if not verdict.growing:
        return f"Growth: nothing grows, {of}"
    most = verdict.growing[0]
    others = f" and {plural(len(verdict.growing) - 1, 'other')}" if len(verdict.growing) > 1 else ""
    return f"Growth suspected: {size(verdict.growth)} a step, {of}; most at {most.where}{others}"


# -- devices -------------------------------------------------------------------------------------------------------


def _or_nothing(value: int | None) -> str:
    return "" if value is None else size(value)


def _devices(state: LiveState) -> Table:
    names = ("device", "allocated", "peak", "reserved", "device used", "of others", "headroom")
    rows = [
        (
            one.device,
            size(one.allocated),
            size(one.peak),
            _or_nothing(one.reserved),
            _or_nothing(one.used),
            _or_nothing(one.others),
            _or_nothing(one.headroom),
        )
        for one in state.devices
    ]
    if state.resident is not None:
        rows.append(("whole process", size(state.resident), "", "", "", "", ""))
    columns = (
        Column("device"),
        *(Column(name, right=True, optional=max(0, i - 1)) for i, name in enumerate(names[1:])),
    )
    return Table(columns, tuple(rows))


def _device(state: LiveState, device: LiveDevice, shown: Shown) -> list[Block]:
    found: list[Block] = []
    peaks = [step.peak for step in device.steps]
    if peaks:
        room = max(10, min(_COLUMNS, shown.columns - 40))
        last = peaks[-room:]
        span = size(last[0]) if min(last) == max(last) else f"{size(min(last))} to {size(max(last))}"
        found.append(Text(f"Peaks of the last {plural(len(last), 'step')} on {device.device}: {span}", "strong"))
        found.append(Text(f"  {sparks.curve(peaks, room)}"))
    found.append(Text(f"Alive on {device.device} now: {size(device.allocated)}", "strong"))
    found.append(Text(f"  {_categories(device.categories)}", hang=2, breaks=" · "))
    verdict = state.verdict
    if verdict is not None and device.device in verdict.peaks and device.categories.get(UNKNOWN):
        step = verdict.peak_steps.get(device.device)
        moment = f" of step {step}" if step is not None else ""
        parts = _categories(verdict.peaks[device.device])
        found.append(Text(f"  at the peak{moment}: {parts}", "dim", hang=2, breaks=" · "))
    if shown.order != ORDERS[0]:
        found.append(Text(f"  sorted by {shown.order}", "dim"))
    found.append(_lines(device, shown, verdict.peak_steps.get(device.device) if verdict is not None else None))
    return found


def _categories(sums: Mapping[str, int]) -> str:
    return " · ".join(f"{_named(category)} {size(bytes_)}" for category, bytes_ in sums.items()) or "nothing"


def _named(category: str) -> str:
    return _UNKNOWN if category == UNKNOWN else category


def ordered(lines: Sequence[LiveLine], order: str) -> list[LiveLine]:
    keys = {
        "bytes": lambda line: (-line.bytes, line.where),
        "blocks": lambda line: (-line.blocks, line.where),
        "line": lambda line: (line.where, -line.bytes),
    }
    return sorted(lines, key=lambda line: (line.frame is None, keys[order](line)))


def _lines(device: LiveDevice, shown: Shown, peak_step: int | None) -> Table:
    columns = (
        Column("live", right=True),
        Column("share", right=True),
        Column("blocks", right=True),
        Column("category", flexible=True, least=16),
        LINE,
        CODE,
    )
    lines = ordered(device.lines, shown.order)
    rows = [
        (
            size(line.bytes),
            share(line.bytes, device.allocated),
            count(line.blocks),
            _category(line, peak_step),
            file(line.frame) + f":{line.frame.line}" if line.frame is not None else line.where,
            code(line.frame),
        )
        for line in lines[: shown.rows]
    ]
    rest = lines[shown.rows :]
    if rest:
        left = sum(line.bytes for line in rest)
        blocks = sum(line.blocks for line in rest)
        rows.append(
            (size(left), share(left, device.allocated), count(blocks), "", f"({plural(len(rest), 'more line')})", "")
        )
    return Table(columns, tuple(rows))


def _category(line: LiveLine, peak_step: int | None) -> str:
    """Of most of its bytes; of what is not known yet, what the line was for at the peak that was judged."""
    largest = max(line.categories, key=lambda one: line.categories[one])
    more = f" +{len(line.categories) - 1}" if len(line.categories) > 1 else ""
    if largest != UNKNOWN:
        return largest + more
    judged = next((one for one in line.judged if one not in line.categories), None)
    if judged is None:
        return _UNKNOWN + more
    return f"{judged}{more}, step {peak_step}" if peak_step is not None else f"{judged}{more}, at the peak"
