"""An out-of-memory error on one page: what was asked for, alive and cached, and what would have let it fit."""

from collections.abc import Callable, Iterable, Sequence

from cuptimem.output.text import advice_views, garbage_views, held_views, leak_views
from cuptimem.output.text.blocks import CODE, LINE, Block, Column, Table, Text
from cuptimem.output.text.fragmentation_views import variable
from cuptimem.output.text.ledger_views import prose
from cuptimem.output.text.peak_views import by_origin, named_tensors, numbered, phase
from cuptimem.output.text.words import code, count, duration, function, place, plural, share, size, where
from cuptimem.report import grouping, logged
from cuptimem.report.cycles import CYCLE
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.held import HeldLine
from cuptimem.report.leaks_at_peak import at_peak, not_of
from cuptimem.report.model import Contributor, OutOfMemory, Report, first_lines, lines_of
from cuptimem.report.process import HOST

_TOP = 6
_ADVISED = 3  # changes
_HELD = 3  # lines with their tensors and holders, and leaks
_ARROW, _TRACEBACK = " → ", "traceback"  # in a holder's path: behind the name of an exception
_NAMES_WIDTH = 40  # characters of tensors' names and shapes
_REST = "(not known: compacted, lost, or not a tensor's)"


def page(report: Report, oom: OutOfMemory) -> list[Block]:
    """At most 50 lines of 80 columns, and a dozen with what is advised."""
    held = [one for one in (*report.held, *report.waiting) if one.device == oom.device] if oom.escaped else []

    def lines(oom: OutOfMemory) -> Table:
        return _lines(oom, held)

    blocks = [*_asked(report, oom), Text(), *_memory(oom)]
    if oom.contributors:
        blocks += _leaks(report, oom)
        for by, table in (("category", _categories), ("line", lines), ("module", _modules)):
            if by != "module" or any(c.module is not None for c in oom.contributors):
                blocks += [Text(), Text(f"Live by {by}", "title"), table(oom)]
    elif oom.allocated:
        blocks += [Text(), *prose("What was alive is kept of the first sixteen refused requests only.", "dim")]
    blocks += [
        Text(),
        Text("What would have let this request fit", "title"),
        *garbage_views.at_refusal(report, oom),
        *_fits(report, oom, held),
    ]
    others = sum(device.refused for device in report.devices) - 1
    if others:
        blocks.append(
            Text(f"  {plural(others, 'other request')} refused; cuptimem peak --at oom --json has them", "dim")
        )
    return blocks


def advised(report: Report, oom: OutOfMemory) -> list[Block]:
    """The changes that save most; nothing where none does, or where to find them takes long. Reads the file again."""
    one = advice_views.quick(report, oom.device)
    rows = () if one is None else advice_views.best(one, _ADVISED)
    if one is None or not rows:
        return []
    of = "the peak" if one.step is None else f"the peak of step {one.step}"
    title = Text(f"What would lower {of}, {size(one.peak)}, each alone", "title")
    said = [block for row in rows for block in prose(advice_views.sentence(row, one.peak), mark="  - ")]
    if not one.note:
        why = "from the recording"
    elif one.step != oom.step:
        why = f"for step {one.step}, because step {oom.step} did not end"
    else:
        why = "of what was alive by then: what the program would have asked for next is unknown"
    return [Text(), title, *said, *prose(f"predicted {why}; cuptimem advice shows all, with their costs", "dim")]


def caught(report: Report) -> list[Block]:
    """A line for the requests whose exceptions did not leave the program or the profile."""
    ooms = [oom for oom in report.ooms if not oom.escaped]
    number = sum(device.refused for device in report.devices) - (report.oom_left is not None)
    if not ooms:
        return []
    largest = max(ooms, key=lambda oom: oom.requested)
    what = "was" if number == 1 else "were"
    ended = " and caught" if report.complete else ""
    most = "" if number == 1 else "at most "
    text = f"{plural(number, 'request')} {what} refused{ended}: {most}{size(largest.requested)} asked"
    return [Text(f"! {text}{_at(largest)} with {size(largest.allocated)} in use on {largest.device}", "warning")]


def left(oom: OutOfMemory) -> Text:
    """The line of the one that ended the program or the profile."""
    asked = f"asked for {size(oom.requested)} with {size(oom.allocated)} in use"
    line = f"  {code(oom.frame)}" if oom.frame is not None else ""
    return Text(f"! out of memory on {oom.device}: {asked}{_at(oom, ',')}{line}", "warning")


def _at(oom: OutOfMemory, mark: str = "") -> str:
    """With the line of forward, where the request's own is that of the backward pass."""
    backward = " in the backward pass of" if oom.operator is not None else " at"
    return f"{mark}{backward} {place(oom.frame)}" if oom.frame is not None else ""


def _asked(report: Report, oom: OutOfMemory) -> list[Block]:
    step = f"in step {numbered(oom.step, logged.numbers(report))}, " if oom.step is not None else ""
    moment = f"{step}{duration(oom.time_ns)} after the start"
    blocks: list[Block] = [Text(f"Out of memory on {oom.device}: {size(oom.requested)} refused, {moment}", "title")]
    frame = oom.frame
    if frame is None:
        return [*blocks, Text("  (no Python line)")]
    blocks += prose(f"{place(frame)} in {function(frame)}")
    if frame.source:
        blocks.append(Text(f"      {code(frame)}", cut=True))
    if oom.operator is not None:
        blocks.append(Text(f"  for {oom.operator}, in backward"))
    return blocks


def _memory(oom: OutOfMemory) -> list[Block]:
    whole = oom.allocated + (oom.cached or 0)
    rows = [("live", oom.allocated, "")]
    if oom.cached is not None:
        rows.append(("cached, not in use", oom.cached, _unusable(oom, oom.cached)))
    memory = oom.memory
    if memory is not None and memory.free_on_device is not None:
        rows.append(("free on the device", memory.free_on_device, ""))
        whole += memory.free_on_device
    if len(rows) == 1:
        return [Text(f"  live {size(oom.allocated)}")]
    return [
        Text(f"  {name:<18} {size(value):>11}  {share(value, whole):>5}  {note}".rstrip()) for name, value, note in rows
    ]


def _leaks(report: Report, oom: OutOfMemory) -> list[Block]:
    alive = (((c.stack, c.phase), c.bytes) for c in oom.contributors)
    leaks = at_peak(report.leaks, oom.device, oom.allocated, alive)
    return [Text(), *leak_views.at_peak(leaks[:_HELD], oom.allocated, "what is live")] if leaks else []


def _unusable(oom: OutOfMemory, cached: int) -> str:
    """Of the cached bytes, those in pieces that the request did not fit into."""
    small = None if oom.memory is None else oom.memory.too_small
    if not cached or small is None:
        return ""
    return "all in pieces too small for it" if small == cached else f"{size(small)} of it in pieces too small for it"


_Row = tuple[int, int, tuple[str, ...]]


def _cells(oom: OutOfMemory, rows: Sequence[_Row], others: Sequence[_Row]) -> tuple[tuple[str, ...], ...]:
    """Those shown, and a row for the others, so that the rows sum to what was allocated."""
    shown = list(rows)
    width = len(shown[0][2])
    for bytes_, blocks, name in (
        (sum(row[0] for row in others), sum(row[1] for row in others), f"({count(len(others))} more)"),
        (oom.unknown, 0, _REST),
    ):
        if bytes_:
            shown.append((bytes_, blocks, (name, *[""] * (width - 1))))
    return tuple(
        (size(bytes_), share(bytes_, oom.allocated), count(blocks) if blocks else "", *cells)
        for bytes_, blocks, cells in shown
    )


_NUMBERS = (
    Column("live", right=True, style="strong"),
    Column("share", right=True, optional=1),
    Column("blocks", right=True, optional=3),
)


def _top(rows: Sequence[object]) -> int:
    return _TOP + (len(rows) == _TOP + 1)  # a row "(1 more)" takes as much room as its one


def _summed(oom: OutOfMemory, name: str, key: Callable[[Contributor], str]) -> Table:
    sums: dict[str, tuple[int, int]] = {}
    for c in oom.contributors:
        bytes_, blocks = sums.get(key(c), (0, 0))
        sums[key(c)] = bytes_ + c.bytes, blocks + c.count
    rows = sorted(((*total, (text,)) for text, total in sums.items()), key=lambda row: (-row[0], row[2]))
    top = _top(rows)
    return Table((*_NUMBERS, Column(name, flexible=True)), _cells(oom, rows[:top], rows[top:]))


def _categories(oom: OutOfMemory) -> Table:
    return _summed(oom, "category", lambda c: c.category)


def _modules(oom: OutOfMemory) -> Table:
    return _summed(oom, "module", lambda c: c.module or grouping.OUTSIDE)


def _lines(oom: OutOfMemory, held: Sequence[HeldLine]) -> Table:
    """With shapes where they are known. held: what the functions that the exception has left held behind it."""
    lines = lines_of(oom.contributors)
    shown, others = first_lines(lines, _top(lines))
    rows = [
        [(line.bytes, line.count, (where(line), phase(line), code(line.frame))) for line in some]
        for some in (shown, others)
    ]
    tensors = by_origin(oom.tensors)
    under = [
        (
            *(f"tensors {names}" for names in [named_tensors(one, tensors, _NAMES_WIDTH)] if names),
            *held_views.under(one.frame, held, one.bytes, oom.allocated, 1 if number else 2),
        )
        for number, one in enumerate(shown[:_HELD])
    ]
    columns = (LINE, Column("phase", optional=2), CODE)
    return Table((*_NUMBERS, *columns), _cells(oom, *rows), under=tuple(under))


# -- what would have let it fit ------------------------------------------------------------------------------------


def _fits(report: Report, oom: OutOfMemory, held: Sequence[HeldLine]) -> list[Block]:
    """Arithmetic only: each line is enough by itself, or says what is left to free."""
    memory = oom.memory
    if memory is None or memory.lacked is None or memory.needed is None or memory.free_on_device is None:
        where = "the machine" if oom.device in HOST else "the device"
        return prose(f"Not known: the recording does not say how much {where} had left.")
    lacked, needed = memory.lacked, memory.needed
    if lacked == 0:
        return prose(
            f"Enough was free, as far as was seen: {size(memory.free_on_device)} on the device, {size(needed)} needed. "
            "A limit of the program's own (set_per_process_memory_fraction) would explain it."
        )
    most = memory.free_on_device + memory.reserved
    blocks: list[Block] = []
    if needed > most:
        return prose(
            f"Nothing that PyTorch could free: the request needs {size(needed)}, and with all of PyTorch's memory back "
            f"the device would have {size(most)}."
        )
    blocks += prose(f"freeing {size(lacked)} more on the device: the request needs {size(needed)} of it", mark="  - ")
    blocks += _caught_before(held, lacked)
    blocks += _expandable(report, memory, lacked)
    return blocks + _activations(not_of(report.leaks, oom.device, oom.contributors), lacked)


def _caught_before(held: Sequence[HeldLine], lacked: int) -> list[Block]:
    """An exception that was caught and is kept, as of a batch that was too large, keeps what its functions had."""
    kept: dict[str, int] = {}
    for one in (holder for line in held for holder in line.holders if not holder.path.startswith(CYCLE)):
        way = one.path.split(_ARROW)
        if _TRACEBACK in way:
            name = _ARROW.join(way[: way.index(_TRACEBACK)])
            kept[name] = kept.get(name, 0) + one.bytes
    named: list[str] = []
    has = 0
    for name in sorted(kept, key=lambda name: -kept[name]):
        named.append(name)
        has += kept[name]
        if has >= lacked:
            if len(named) == 1:
                said = (
                    f"the exception that is kept ({name}): its traceback has {size(has)} of the functions that it left"
                )
            else:
                said = f"the exceptions that are kept ({'; '.join(named)}): their tracebacks have {size(has)} together"
            return prose(f"dropping {said}", mark="  - ")
    return []


def _expandable(report: Report, memory: Fragmentation, lacked: int) -> list[Block]:
    """What lies free in partly used segments, and would come back were they expandable."""
    gain = memory.expandable_returns - memory.empty_cache_returns
    if gain <= 0:
        return []
    setting = f"{variable(report.environment.get('torch', ''))}=expandable_segments:True"
    rest = "" if gain >= lacked else f": at least {size(lacked - gain)} would be left to free"
    return prose(f"{setting} would give back up to {size(gain)} of the cached memory{rest}", mark="  - ")


def _activations(contributors: Iterable[Contributor], lacked: int) -> list[Block]:
    """Where half of them would be enough. They grow with the batch, other memory does not, nor what is kept of earlier
    batches."""
    activations = sum(c.bytes for c in contributors if c.category == "activation")
    if activations < 2 * lacked:
        return []
    part = -(-100 * lacked // activations)
    return prose(
        f"{part} % less of the {size(activations)} of activations (a smaller batch, or checkpointing)", mark="  - "
    )
