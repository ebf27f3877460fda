"""What a device held at a moment, or gave out, line by line."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from cuptimem.output.text import garbage_views, held_views
from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Table, Text
from cuptimem.output.text.part_views import in_a_line, parts_under, under
from cuptimem.output.text.words import code, count, duration, function, more, place, plural, share, size, where
from cuptimem.report import grouping
from cuptimem.report.held import holders_of
from cuptimem.report.model import Contents, Contributor, Line, LiveTensor, Peak, Report, first_lines

_INDENT = " " * 20
_OPERATORS = 4  # named of an entry
_TENSORS = 3  # named of an entry, if that takes no more than
_NAMES_WIDTH = 90  # characters


def numbered(step: int, logged: Mapping[int, int]) -> str:
    """43; 43 (logged as 40)"""
    return f"{step} (logged as {logged[step]})" if step in logged else str(step)


def moment(contents: Contents, logged: Mapping[int, int] = MappingProxyType({})) -> str:
    """Of what the bytes are. logged: numbers of steps in the program's logs."""
    step = contents.step
    if contents.what == "peak":
        inside = f"in step {numbered(step, logged)}, " if step is not None else ""
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
    if contents.device == "pinned":
        rounding = size(contents.bytes - (device.requested_peak or 0))
        return f"{requested} asked for, {rounding} to round each to a power of two"
    return f"{requested} asked for"


def rest_name(contents: Contents) -> str:
    """Why a part has no line."""
    return "(everything else)" if contents.what == "peak" else "(compacted: no line kept)"


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


def knows_categories(contributors: Iterable[Contributor]) -> bool:
    """Whether it is known of any of the blocks what they are for."""
    return any(one.category not in ("unknown", "before start") for one in contributors)


def category(contributors: Iterable[Contributor]) -> str:
    """The largest one's, and how many others have 1 % or more: "activation +1"."""
    groups = grouping.group(contributors, "category")
    least = sum(group.bytes for group in groups) / 100
    return groups[0].key + more(sum(group.bytes >= least for group in groups[1:]))


def kinds(contents: Contents) -> tuple[str, Callable[[Line], str]]:
    """What stands beside a line, and its heading: the category where any is known, else the phase."""
    if knows_categories(contents.contributors):
        return "category", lambda line: category(line.contributors)
    return "phase", phase


def phase(line: Line) -> str:
    """The largest one's, and how many others there are."""
    return line.phase + more(len(line.phases) - 1)


def lines_table(contents: Contents, top: int) -> list[Block]:
    """The largest lines, and the others in rows of their own, so that the rows always sum to the whole."""
    shown, others = first_lines(contents.lines, top)
    heading, kind = kinds(contents)
    repeated = len({where(line) for line in shown}) < len(shown)  # what else tells rows apart is no luxury
    rows = [
        (
            size(line.bytes),
            share(line.bytes, contents.bytes),
            count(line.count),
            kind(line),
            where(line),
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
            Column("share", right=True, optional=1),
            Column("blocks", right=True, optional=3),
            Column(heading, optional=1 if repeated else 2),
            LINE,
            FUNCTION,
            CODE,
        ),
        tuple(rows),
        under=tuple(under(line, contents) for line in shown),
    )
    return [table] if rows else []


def full(report: Report, all_contents: Iterable[Contents], top: int) -> list[Block]:
    """The lines one by one: what runs below them, in which modules, for which operators."""
    blocks: list[Block] = []
    for contents in all_contents:
        tensors = by_origin(contents.tensors if isinstance(contents, Peak) else ())
        requested = asked(report, contents)
        what = f"{size(contents.bytes)} ({requested})" if requested else size(contents.bytes)
        title = f"{contents.device}: {what} in {plural(contents.count, 'block')}, {when(contents)}"
        lines, left = first_lines(contents.lines, top)
        blocks += [Text(), Text(title, "title"), *garbage_views.at_peak(report, contents)]
        for line in lines:
            blocks += _entry(line, contents, tensors)
        blocks += _rest(sum(x.bytes for x in left), sum(x.count for x in left), "everything else", contents)
        name = rest_name(contents).strip("()")
        blocks += _rest(contents.rest_bytes, contents.rest_count, name, contents)
    return blocks


def _rest(left_bytes: int, left_count: int, name: str, contents: Contents) -> list[Block]:
    if not left_bytes and not left_count:
        return []
    part = f"{size(left_bytes):>11}  {share(left_bytes, contents.bytes):>5}"
    return [Text(f"{part}  {name}, {plural(left_count, 'block')}")]


Tensors = Mapping[tuple[int, str, str | None], Sequence[LiveTensor]]


def by_origin(tensors: Iterable[LiveTensor]) -> Tensors:
    """By stack (its id(): hashing long ones takes time), category and module, as contributors have them."""
    found: dict[tuple[int, str, str | None], list[LiveTensor]] = {}
    for one in tensors:
        found.setdefault((id(one.stack), one.category, one.module), []).append(one)
    return found


def _entry(line: Line, contents: Contents, tensors: Tensors) -> list[Block]:
    frame = line.frame
    head = f"{size(line.bytes):>11}  {share(line.bytes, contents.bytes):>5}  {where(line)}"
    if frame is not None:
        head += f" in {function(frame)}"
    made = dict.fromkeys([phase(line)])  # "before start" is both
    if knows_categories(contents.contributors):
        made[category(line.contributors)] = None
    head = f"{head}  ({', '.join(made)}, {plural(line.count, 'block')})"
    blocks: list[Block] = [
        Text(head, "strong", hang=len(_INDENT) + 2),
        *([Text(_INDENT + code(frame), cut=True)] if code(frame) else []),
    ]
    kinds_ = _categories(line.contributors)
    parts = _parts(line, contents)
    said = [
        *held_views.each(holders_of(contents.held, line.frame), line.bytes),
        *(f"in {below}" for below in [via(line)] if below),
        *(f"modules {names}" for names in [modules(line.contributors)] if names),
        *(f"operators {names}" for names in [_named(c.operator for c in line.contributors)] if names),
        *(f"saved by {names}" for names in [_named(c.saved_by for c in line.contributors)] if names),
        *(f"tensors {names}" for names in [named_tensors(line, tensors)] if names),
    ]
    blocks += [Text(_INDENT + kinds_, "dim")] if kinds_ else []
    blocks += [Text(_INDENT + text, "dim", breaks=", ", cut=len(parts) > 1) for text in parts]
    return blocks + [Text(_INDENT + text, "dim") for text in said]


def _parts(line: Line, contents: Contents) -> Sequence[str]:
    """All of them in a line, or modules below each other."""
    return parts_under(line, contents) or [said for said in [in_a_line(line, contents)] if said]


def _categories(contributors: Iterable[Contributor]) -> str:
    """Where there are several."""
    groups = grouping.group(contributors, "category")
    return ", ".join(f"{group.key} {size(group.bytes)}" for group in groups) if len(groups) > 1 else ""


def named_tensors(line: Line, tensors: Tensors, width: int = _NAMES_WIDTH) -> str:
    """Those of the line that have a name, or a shape and 1 % of its bytes, the largest first, as far as they fit."""
    origins = dict.fromkeys((id(c.stack), c.category, c.qualified) for c in line.contributors)
    found = sorted((one for key in origins for one in tensors.get(key, ())), key=lambda one: -one.bytes)
    named = list(
        dict.fromkeys(filter(None, (tensor(one) for one in found if one.name or one.bytes * 100 >= line.bytes)))
    )
    shown = named[:1]
    for name in named[1:_TENSORS]:
        if len(", ".join([*shown, name])) <= width:
            shown.append(name)
    return ", ".join(shown) + more(len(named) - len(shown))


def tensor(one: LiveTensor) -> str:
    """h.0.weight float32[768, 3072]"""
    layout = "" if one.dtype is None or one.shape is None else f"{one.dtype}[{', '.join(map(str, one.shape))}]"
    return " ".join(part for part in (one.name, layout) if part)


def via(line: Line) -> str:
    """The innermost lines, below the one that is shown; the largest contributor's is named."""
    inner = [c.library_frame for c in line.contributors]
    frames = [frame for frame in inner if frame is not None and (line.frame is None or not frame.same_line(line.frame))]
    if not frames:
        return ""
    others = len({(frame.file, frame.line) for frame in frames}) - 1
    return f"{place(frames[0])} {frames[0].function}{more(others)}"


def modules(contributors: Iterable[Contributor]) -> str:
    """The modules that all of them belong to or were made in; what differs below is only counted."""
    some = tuple(contributors)
    qualified = sorted({c.qualified for c in some if c.qualified})
    if qualified:
        return _above(qualified)
    paths = list(dict.fromkeys(c.modules for c in some))
    common = paths[0]
    for path in paths[1:]:
        same = next((i for i, (a, b) in enumerate(zip(common, path, strict=False)) if a != b), None)
        common = common[: min(len(common), len(path)) if same is None else same]
    if len(paths) == 1:
        return " > ".join(common)
    return " > ".join([*common, f"… +{count(len(paths))}"])


def _above(names: Sequence[str]) -> str:
    """These modules; of many the modules above them, as deep as few do for all: "encoder.layers (14 modules)"."""
    split = [name.split(".") for name in names]
    for depth in range(max(map(len, split)), 0, -1):
        above = list(dict.fromkeys(".".join(parts[:depth]) for parts in split))
        if len(above) <= _OPERATORS:
            break
    said = ", ".join(above[:_OPERATORS]) + more(len(above) - _OPERATORS)
    return said if len(above) == len(names) else f"{said} ({plural(len(names), 'module')})"


def _named(names: Iterable[str | None]) -> str:
    found = sorted({name for name in names if name})
    return ", ".join(found[:_OPERATORS]) + more(len(found) - _OPERATORS)
