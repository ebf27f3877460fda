"""Two recordings on one screen: what was added and removed, what grew and shrank."""

from collections.abc import Sequence
from dataclasses import replace

from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Table, Text
from cuptimem.output.text.words import code, count, function, plural, signed, size, where
from cuptimem.report.diff import Change, DeviceDiff, Section
from cuptimem.report.model import first_lines

_TITLES = {"peak": "At the peak on {}", "end": "Live at the end on {}", "stepped": "Allocated in a step on {}"}
_PARTS = 3  # of a line, named


def name(section: Section) -> str:
    """What a section is about, behind the name of its device."""
    if section.loop:
        what = "peak" if section.what == "peak" else "allocated"
        return f"{what} in a step of {section.loop}" if what == "allocated" else f"highest peak of {section.loop}"
    return {"peak": "peak", "end": "live at the end", "stepped": "allocated a step"}[section.what]


def title(section: Section, device: str) -> str:
    """The same as a heading, with the steps that are compared."""
    if not section.loop:
        return _TITLES[section.what].format(device)
    steps = [f"step {step}" for step in section.at if step is not None]
    which = " and ".join(dict.fromkeys(steps))
    if section.what == "peak":
        return f"At the highest peak of {section.loop} on {device} ({which})"
    return f"Allocated in a step of {section.loop} on {device} ({which})"


def apart(device: DeviceDiff) -> str:
    """Where the peaks lie at moments of different kinds: that they do; else nothing."""
    if device.peak_loops[0] == device.peak_loops[1]:
        return ""
    was, is_ = (f"in a step of {loop}" if loop else "outside of all steps" for loop in device.peak_loops)
    like = [section.loop for section in device.of_loops if section.what == "peak"]
    also = f"; the highest peaks of {' and of '.join(like)} are compared, too" if like else ""
    return f"the peaks on {device.device} lie at different moments: before {was}, after {is_}{also}"


def totals(devices: list[DeviceDiff]) -> Table:
    rows = []
    for device in devices:
        for section in device.shown:
            was, is_ = section.a_step(section.bytes)
            part = f"{100 * (is_ - was) / was:+.0f} %" if was and is_ != was else ""
            change = signed(round(is_) - round(was))
            rows.append((f"{device.device} {name(section)}", size(round(was)), size(round(is_)), change, part))
    columns = (
        Column(""),
        Column("before", right=True, optional=1),
        Column("after", right=True, optional=1),
        Column("change", right=True, style="strong"),
        Column("", right=True, optional=2),
    )
    return Table(columns, tuple(rows))


def full(devices: list[DeviceDiff], named: str | None, top: int, counts: Sequence[str] = ("", "")) -> list[Block]:
    """Totals of all devices; lines of the first that changed, or of the one that was named. counts: of the steps."""
    blocks: list[Block] = [Text(), totals(devices)]
    if counts[0] != counts[1]:
        blocks.append(Text(f"  steps before: {counts[0] or 'none'}; after: {counts[1] or 'none'}", "dim"))
    changed = [one for one in devices if any(_changed(section) for section in one.shown)]
    chosen = [one for one in devices if one.device == named] if named is not None else changed[:1]
    for device in chosen:
        if said := apart(device):
            blocks += [Text(), Text(f"! {said}", "warning")]
        for section in device.shown:
            blocks += _section(device.device, section, top)
    if not changed:
        blocks += [Text(), Text("No line differs.")]
    elif named is None and len(changed) > 1:
        others = ", ".join(one.device for one in changed[1:])
        blocks += [Text(), Text(f"Lines of {others}: --device", "dim")]
    return blocks


def _changed(section: Section) -> list[Change]:
    return [change for change in section.changes if _rounded(section, change.bytes)[2] or change.kind == "moved"]


def _rounded(section: Section, pair: tuple[int, int]) -> tuple[int, int, int]:
    was, is_ = (round(value) for value in section.a_step(pair))
    return was, is_, is_ - was


def _section(device: str, section: Section, top: int) -> list[Block]:
    was, is_, change = _rounded(section, section.bytes)
    changed = _changed(section)
    heading = f"{title(section, device)}: {signed(change)} ({size(was)} to {size(is_)})"
    blocks: list[Block] = [Text(), Text(heading, "title")]
    if not changed:
        return [Text(), Text(f"{heading}, no line differs", "title")]
    shown, _ = first_lines(changed, top)
    rows = [_row(section, one) for one in shown]
    kept = {id(one) for one in shown}
    others = [one.bytes for one in section.changes if id(one) not in kept]

    def rest(pairs: list[tuple[int, int]], text: str) -> None:
        pair = (sum(one[0] for one in pairs), sum(one[1] for one in pairs))
        if any(pair):
            before, after, more_ = _rounded(section, pair)
            rows.append((signed(more_), size(before), size(after), "", text, "", ""))

    equal = len(section.changes) - len(changed)
    rest(others, f"({len(others)} more, {equal} equal)" if equal else f"({plural(len(others), 'more line')})")
    rest([section.rest], "(compacted: no line kept)")
    # The word always stays. What has no room goes in this order: functions, code, the sizes before and after.
    columns = (
        Column("change", right=True, style="strong"),
        Column("before", right=True, optional=1),
        Column("after", right=True, optional=1),
        Column(""),
        LINE,
        FUNCTION,
        replace(CODE, optional=2),
    )
    return [*blocks, Table(columns, tuple(rows), under=tuple(_under(section, one) for one in shown))]


def _row(section: Section, change: Change) -> tuple[str, ...]:
    was, is_, more_ = _rounded(section, change.bytes)
    line = change.shown
    kind = "moved" if change.kind in ("grew", "shrank") and not more_ else change.kind
    before = "" if change.before is None else size(was)
    after = "" if change.after is None else size(is_)
    return (signed(more_), before, after, kind, where(line), function(line.frame), code(line.frame))


def _under(section: Section, change: Change) -> tuple[str, ...]:
    """Where it was, if it moved; and which parts of it changed most."""
    said = []
    if change.moved and change.before is not None:
        said.append(f"moved from {where(change.before)} {function(change.before.frame)}")
    if parts := parts_in_a_line(section, change):
        said.append(parts)
    return tuple(said)


def parts_in_a_line(section: Section, change: Change) -> str:
    """of which -5.0 MiB conv2d, -4.8 MiB group_norm, -1.2 MiB in 2 more; "" where one part is all that changed."""
    whole = _rounded(section, change.bytes)[2]
    parts = [(text, _rounded(section, (was, is_))[2]) for text, was, is_ in change.parts]
    large = [(text, part) for text, part in parts if abs(part) * 100 > abs(whole)]
    if not large or (len(large) == 1 and "." not in large[0][0] and abs(large[0][1]) >= 0.9 * abs(whole)):
        return ""  # one call of PyTorch's says what the line says
    shown = large[:_PARTS]
    named = [f"{signed(part)} {text}" for text, part in shown]
    rest = [(text, part) for text, part in parts[len(shown) :] if part]
    left = whole - sum(part for _, part in shown)
    if rest and signed(whole - left) != signed(whole):
        named.append(f"{signed(left)} {rest[0][0] if len(rest) == 1 else f'in {count(len(rest))} more'}")
    return f"of which {', '.join(named)}"
