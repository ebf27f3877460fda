"""What a device held at a moment, or gave out, line by line."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from cuptimem.report import Contents, Contributor, Line, Report
from cuptimem.reporters.blocks import Block, Column, Table, Text
from cuptimem.reporters.descent import shown_lines
from cuptimem.reporters.words import code, count, duration, function, more, plural, share, size

_INDENT = " " * 20
_OPERATORS = 4  # named of an entry


def moment(contents: Contents) -> str:
    """Of what the bytes are."""
    step = contents.step
    if contents.what == "peak":
        inside = f"in step {step}, " if step is not None else ""
        return f"{inside}{duration(contents.time_ns)} after the start"
    words = {
        "start": ("at the start", f"at the start of step {step}"),
        "end": ("at the end", f"at the end of step {step}"),
        "allocated": ("allocated in all", f"allocated in step {step}"),
        "stepped": ("allocated in steps", f"allocated in step {step}"),
        "temporary": ("freed in the step that made it", f"made and freed in step {step}"),
    }
    return words[contents.what][step is not None]


def when(contents: Contents) -> str:
    """The moment, where nothing before it names the peak."""
    return f"at the peak, {moment(contents)}" if contents.what == "peak" else moment(contents)


def asked(report: Report, contents: Contents) -> str:
    """What of the run's peak the program asked for, where the allocator rounded it up; else nothing."""
    device = report.device(contents.device)
    if device.peak is not contents or device.requested_peak in (None, contents.bytes):
        return ""
    requested = size(device.requested_peak or 0)
    if requested == size(contents.bytes):
        return f"all but {size(contents.bytes - (device.requested_peak or 0))} asked for"
    return f"{requested} asked for"


def rest_name(contents: Contents) -> str:
    """Why a part has no line."""
    return "(everything else)" if contents.what == "peak" else "(folded: no line kept)"


class _Row(Protocol):
    @property
    def bytes(self) -> int: ...

    @property
    def count(self) -> int: ...


def left_out(others: Sequence[_Row], contents: Contents, what: str) -> Iterator[tuple[int, int, str]]:
    """(bytes, blocks, name) of what a table has no row for. what: "line" or "row"."""
    smaller = sum(row.bytes for row in others), sum(row.count for row in others)
    for (bytes_, count_), name in (
        (smaller, f"({plural(len(others), f'more {what}')})"),
        ((contents.rest_bytes, contents.rest_count), rest_name(contents)),
    ):
        if bytes_ or count_:
            yield bytes_, count_, name


def lines_table(contents: Contents, top: int) -> list[Block]:
    """The largest lines, and the others in rows of their own, so that the rows always sum to the whole."""
    lines, said = shown_lines(contents)
    shown, others = lines[:top], lines[top:]
    rows = [
        (
            size(line.bytes),
            share(line.bytes, contents.bytes),
            count(line.count),
            line.phase,
            line.where,
            function(line.frame),
            code(line.frame),
        )
        for line in shown
    ]

    for bytes_, count_, name in left_out(others, contents, "line"):
        rows.append((size(bytes_), share(bytes_, contents.bytes), count(count_), "", name, "", ""))
    table = Table(
        (
            Column("live" if contents.what in ("peak", "start", "end") else "bytes", right=True, style="strong"),
            Column("share", right=True),
            Column("blocks", right=True),
            Column("phase"),
            Column("line", flexible=True, keep_end=True),
            Column("function", flexible=True),
            Column("code", flexible=True, style="dim"),
        ),
        tuple(rows),
    )
    return [*said, table] if rows else []


def full(report: Report, all_contents: Iterable[Contents], top: int) -> list[Block]:
    """The lines one by one: what runs below them, in which modules, for which operators."""
    blocks: list[Block] = []
    for contents in all_contents:
        requested = asked(report, contents)
        what = f"{size(contents.bytes)} ({requested})" if requested else size(contents.bytes)
        title = f"{contents.device}: {what} in {plural(contents.count, 'block')}, {when(contents)}"
        lines, said = shown_lines(contents)
        blocks += [Text(), Text(title, "title"), *said]
        for line in lines[:top]:
            blocks += _entry(line, contents)
        left = lines[top:]
        blocks += _rest(sum(x.bytes for x in left), sum(x.count for x in left), "everything else", contents)
        name = rest_name(contents).strip("()")
        blocks += _rest(contents.rest_bytes, contents.rest_count, name, contents)
    return blocks


def _rest(left_bytes: int, left_count: int, name: str, contents: Contents) -> list[Block]:
    if not left_bytes and not left_count:
        return []
    part = f"{size(left_bytes):>11}  {share(left_bytes, contents.bytes):>5}"
    return [Text(f"{part}  {name}, {plural(left_count, 'block')}")]


def _entry(line: Line, contents: Contents) -> list[Block]:
    frame = line.frame
    head = f"{size(line.bytes):>11}  {share(line.bytes, contents.bytes):>5}  {line.where}"
    if frame is not None:
        head += f" in {function(frame)}"
    blocks: list[Block] = [Text(f"{head}  ({line.phase}, {plural(line.count, 'block')})", "strong")]
    said = [
        code(frame),
        *(f"in {below}" for below in [via(line)] if below),
        *(f"modules {names}" for names in [modules(line.contributors)] if names),
        *(f"operators {names}" for names in [_operators(line)] if names),
    ]
    return blocks + [Text(_INDENT + text, "dim" if number else "") for number, text in enumerate(said) if text]


def via(line: Line) -> str:
    """The innermost lines, below the one that is shown; the largest contributor's is named."""
    inner = [c.library_frame for c in line.contributors]
    frames = [frame for frame in inner if frame is not None and (line.frame is None or not frame.same_line(line.frame))]
    if not frames:
        return ""
    others = len({(frame.file, frame.line) for frame in frames}) - 1
    return f"{frames[0].place} {frames[0].function}{more(others)}"


def modules(contributors: Iterable[Contributor]) -> str:
    """The modules that all of them were made in; what differs below is only counted."""
    paths = list(dict.fromkeys(c.modules for c in contributors))
    common = paths[0]
    for path in paths[1:]:
        same = next((i for i, (a, b) in enumerate(zip(common, path, strict=False)) if a != b), None)
        common = common[: min(len(common), len(path)) if same is None else same]
    if len(paths) == 1:
        return " > ".join(common)
    return " > ".join([*common, f"… +{count(len(paths))}"])


def _operators(line: Line) -> str:
    names = sorted({c.operator for c in line.contributors if c.operator is not None})
    return ", ".join(names[:_OPERATORS]) + more(len(names) - _OPERATORS)
