"""Two recordings on one screen: what came, went, grew and shrank."""

from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Table, Text
from cuptimem.output.text.words import code, function, place, plural, signed, size, where
from cuptimem.report.diff import Change, DeviceDiff, Section

_NAMES = {"peak": "peak", "end": "live at the end", "stepped": "allocated a step"}
_TITLES = {"peak": "At the peak on {}", "end": "Live at the end on {}", "stepped": "Allocated in a step on {}"}


def totals(devices: list[DeviceDiff]) -> Table:
    rows = []
    for device in devices:
        for section in device.sections:
            was, is_ = section.a_step(section.bytes)
            part = f"{100 * (is_ - was) / was:+.0f} %" if was and is_ != was else ""
            name = f"{device.device} {_NAMES[section.what]}"
            rows.append((name, size(round(was)), size(round(is_)), signed(round(is_) - round(was)), part))
    columns = (
        Column(""),
        Column("before", right=True),
        Column("after", right=True),
        Column("change", right=True, style="strong"),
        Column("", right=True, optional=1),
    )
    return Table(columns, tuple(rows))


def full(devices: list[DeviceDiff], named: str | None, top: int) -> list[Block]:
    """Totals of all devices; lines of the first that changed, or of the one that was named."""
    blocks: list[Block] = [Text(), totals(devices)]
    steps = devices[0].sections[-1].steps
    if steps[0] != steps[1]:
        blocks.append(Text(f"  steps: {steps[0]} before, {steps[1]} after", "dim"))
    changed = [one for one in devices if any(_changed(section) for section in one.sections)]
    chosen = [one for one in devices if one.device == named] if named is not None else changed[:1]
    for device in chosen:
        blocks += [
            Text(f"  what stands at {place(frame)} {code(frame)} is by the library's line below it", "dim")
            for frame in device.below
        ]
        for section in device.sections:
            blocks += _section(device.device, section, top)
    if not changed:
        blocks += [Text(), Text("No line differs.")]
    elif named is None and len(changed) > 1:
        others = ", ".join(one.device for one in changed[1:])
        blocks += [Text(), Text(f"Lines of {others}: --device", "dim")]
    return blocks


def _changed(section: Section) -> list[Change]:
    return [change for change in section.changes if _rounded(section, change.bytes)[2]]


def _rounded(section: Section, pair: tuple[int, int]) -> tuple[int, int, int]:
    was, is_ = (round(value) for value in section.a_step(pair))
    return was, is_, is_ - was


def _section(device: str, section: Section, top: int) -> list[Block]:
    was, is_, change = _rounded(section, section.bytes)
    changed = _changed(section)
    title = f"{_TITLES[section.what].format(device)}: {signed(change)} ({size(was)} to {size(is_)})"
    blocks: list[Block] = [Text(), Text(title, "title")]
    if not changed:
        return [Text(), Text(f"{title}, no line differs", "title")]
    rows = [_row(section, one) for one in changed[:top]]
    kept = {id(one) for one in changed[:top]}
    others = [one.bytes for one in section.changes if id(one) not in kept]

    def rest(pairs: list[tuple[int, int]], name: str) -> None:
        pair = (sum(one[0] for one in pairs), sum(one[1] for one in pairs))
        if any(pair):
            before, after, more = _rounded(section, pair)
            rows.append((signed(more), size(before), size(after), "", "", name, "", ""))

    equal = len(section.changes) - len(changed)
    rest(others, f"({len(others)} more, {equal} equal)" if equal else f"({plural(len(others), 'more line')})")
    rest([section.rest], "(folded: no line kept)")
    repeated = len({row[5] for row in rows}) < len(rows)  # what else tells rows apart is no luxury
    columns = (
        Column("change", right=True, style="strong"),
        Column("before", right=True, optional=1),
        Column("after", right=True, optional=1),
        Column("", optional=3),
        Column("phase", optional=1 if repeated else 4),
        LINE,
        FUNCTION,
        CODE,
    )
    return [*blocks, Table(columns, tuple(rows))]


def _row(section: Section, change: Change) -> tuple[str, ...]:
    was, is_, more = _rounded(section, change.bytes)
    line = change.shown
    if change.before is None:
        what = "came"
    elif change.after is None:
        what = "went"
    else:
        what = "grew" if more > 0 else "shrank"
    frame = line.frame
    before = "" if change.before is None else size(was)
    after = "" if change.after is None else size(is_)
    return (signed(more), before, after, what, change.phase, where(line), function(frame), code(frame))
