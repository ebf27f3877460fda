"""What `cuptimem simulate` shows: the verdict first, then what it rests on."""

import os
from collections.abc import Sequence

from cuptimem.output.text import advice_views, leak_views
from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Style, Table, Text
from cuptimem.output.text.part_views import lines_below
from cuptimem.output.text.peak_views import lines_table
from cuptimem.output.text.words import code, count, duration, function, place, plural, size
from cuptimem.report.model import HostRead
from cuptimem.report.stacks import Frame, library_line
from cuptimem.simulation import cards
from cuptimem.simulation.result import DeviceUse, Interval, Modelled, Simulation, UnknownRead

_TOP = 10


def simulation(one: Simulation) -> list[Block]:
    """All of it, with the next command where the report has a file."""
    report = one.report
    blocks: list[Block] = [Text(_heading(one), "title", breaks=" · "), Text(), *_verdict(one)]
    blocks += _devices(one)
    blocks += _peak(one)
    blocks += _modelled(one)
    blocks += _assumptions(one)
    blocks += _host_reads(one)
    blocks += _entries(one)
    blocks += _attempts(one)
    if one.notes:
        blocks += [Text(), *(Text(f"! {note}", "warning") for note in one.notes)]
    if report is not None and report.path is not None and os.path.exists(report.path):
        from cuptimem.naming import typed

        path = typed(report.path)
        verbs = ["summary", *(["peak --at oom"] if report.ooms else []), *(["ledger"] if report.ledgers else [])]
        said = "   ".join(f"cuptimem {verb} {path}" for verb in verbs)
        blocks += [Text(), Text(f"Next: {said}", "dim", hang=6, breaks="   ")]
    return blocks


def _heading(one: Simulation) -> str:
    devices = f"{len(one.devices)} x " if len(one.devices) > 1 else ""
    seconds = one.seconds + sum(run.seconds for run in one.attempts)
    runs = f" of {1 + len(one.attempts)} runs" if one.attempts else ""
    return (
        f"simulated on {devices}{one.card}, {size(one.memory)} · {one.name or 'program'} · "
        f"{duration(int(seconds * 1e9))}{runs} · torch {one.torch}"
    )


def _verdict(one: Simulation) -> list[Block]:
    memory = size(one.memory)
    if one.verdict == "fits":
        head = f"FITS in {memory}"
    elif one.collects:
        head = f"FITS in {memory} if garbage is collected, {one.setting}"
    elif one.verdict == "fits with settings":
        head = f"FITS with {one.setting}, and not in {memory} without"
    elif one.verdict == "does not fit":
        head = f"DOES NOT FIT in {memory}"
    elif one.verdict == "undecided":
        head = "UNDECIDED"
    else:
        head = "THE PROGRAM FAILED"
    style: Style = "strong" if one.verdict.startswith("fits") else "warning"
    blocks: list[Block] = [Text(f"{head}: {one.reason}" if one.reason else head, style)]
    blocks += _collectable(one)
    if one.need is not None:
        blocks += _need(one)
    if one.smallest_memory is not None:
        smallest = interval(Interval(one.smallest_memory.low, one.smallest_memory.high))
        blocks.append(Text(f"  the smallest memory in which it fits: {smallest}"))
    blocks += [Text(f"  {hint}") for hint in one.hints]
    return blocks


def _collectable(one: Simulation) -> list[Block]:
    """What was alive at the refusal by reference cycles only, where nothing was run to try it."""
    left = None if one.report is None or one.verdict != "does not fit" or one.attempts else one.report.oom_left
    freed = 0 if left is None or one.report is None else one.report.collected_after(left)
    if left is None or freed < left.requested:
        return []
    what = f"{size(freed)} of what was alive then was garbage in reference cycles"
    return [Text(f"  {what}: gc.collect() every few steps may let it fit")]


def _need(one: Simulation) -> list[Block]:
    need = one.need
    assert need is not None
    if need.takes_everything:
        return [Text("  the program takes whatever is free: what it needs cannot be found this way")]
    low, high = size(need.low), size(need.high)
    if low == high:
        lines = [f"  it needs {high} on {need.device}"]
    else:
        lines = [
            f"  it needs between {low} and {high} on {need.device}:",
            f"  {low}: its tensors, CUDA's context and libraries; less is not enough",
            f"  {high}: what it took without a limit, PyTorch's cache included",
        ]
    if one.smallest_card is not None:
        lines.append(f"  the smallest card on which it ran: {one.smallest_card}{_workspaces(one)}")
    return [Text(line) for line in lines]


def _workspaces(one: Simulation) -> str:
    """What cuBLAS, which multiplies matrices, gets to work in on the smallest card, where that is less or more."""
    if one.smallest_card is None or not any(row.name.startswith("cuBLAS") for row in one.modelled):
        return ""
    asked, found = cards.card(one.card).cublas_workspace, cards.card(one.smallest_card).cublas_workspace
    return "" if asked == found else f" (cuBLAS multiplies matrices in {size(found)} there, not {size(asked)})"


def interval(one: Interval | None) -> str:
    """12.1 GiB; 12.1 to 12.4 GiB; 512.0 KiB to 1.2 GiB; at least 12.1 GiB"""
    if one is None:
        return ""
    if one.high is None:
        return f"at least {size(one.low)}"
    low, high = size(one.low), size(one.high)
    if low == high:
        return low
    number, unit = low.split()
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _devices(one: Simulation) -> list[Block]:
    """The first run's: where that failed, what it had reached by then."""
    if not one.devices:
        return []
    failed = one.verdict in ("fits with settings", "does not fit")
    blocks: list[Block] = [Text()]
    if failed:
        blocks.append(Text(f"The run in {size(one.memory)}, up to its failure", "title"))
    blocks.append(_device_table(one))
    refused = [f"{plural(device.refused, 'call')} on {device.device}" for device in one.devices if device.refused]
    if refused:  # not the number of OutOfMemoryErrors, which summary has
        blocks.append(Text(f"  the driver refused {', '.join(refused)}; PyTorch calls again before it gives up"))
    return blocks


def _device_table(one: Simulation) -> Table:
    def row(device: DeviceUse) -> tuple[str, ...]:
        return (
            device.device,
            interval(device.allocated),
            interval(device.reserved),
            interval(device.used),
            size(device.total),
        )

    columns = (
        Column("device"),
        Column("peak allocated", right=True),
        Column("reserved", right=True),
        Column("device used", right=True, style="strong"),
        Column("of", right=True),
    )
    return Table(columns, tuple(row(device) for device in one.devices))


def _peak(one: Simulation) -> list[Block]:
    peak = one.peak
    if peak is None:
        return []
    where = " (run without a limit)" if one.need is not None else ""
    return [
        Text(),
        Text(f"What the peak on {peak.device} is made of{where}: {size(peak.bytes)} in tensors", "title"),
        *lines_table(peak, _TOP),
        *_lowers(one),
    ]


def _lowers(one: Simulation) -> list[Block]:
    leaks = leak_views.at_peak(one.advised.leaks, one.advised.peak) if one.advised is not None else []
    said = advice_views.in_a_line(one.advised)
    if said:
        said += [Text("  cuptimem advice --try has their lines, and tries most of them", "dim")]
    return [Text(), *leaks, *said] if leaks or said else []


def _modelled(one: Simulation) -> list[Block]:
    if not one.modelled:
        return []

    def most(row: Modelled) -> str:
        if row.high_bytes is None:
            return f"{size(row.bytes)}; high end not run"
        return interval(Interval(row.bytes, row.high_bytes))

    rows = tuple((row.name, most(row)) for row in one.modelled)
    return [
        Text(),
        Text("Modelled, not PyTorch's own", "title"),
        Table((Column("part", flexible=True), Column("at most", right=True)), rows),
    ]


def _assumptions(one: Simulation) -> list[Block]:
    if not one.assumptions:
        return []
    rows = tuple(
        (
            row.operator,
            f"{row.fraction:g}",
            count(row.count),
            count(row.elements),
            size(row.bytes),
            place(row.frame) if row.file else "(in backward, no Python line)",
            code(row.frame) if row.file else "",
            _within(row.frame, row.library),
        )
        for row in one.assumptions
    )
    given = all(row.given for row in one.assumptions)
    return [
        Text(),
        Text(
            f"Sizes that depend on values, assumed{'' if given else ' (--assume OPERATOR=SHARE changes it)'}",
            "title",
        ),
        _with_library_lines(
            (
                Column("operator"),
                Column("share or mean", right=True),
                Column("times", right=True),
                Column("elements", right=True),
                Column("bytes", right=True),
                LINE,
                CODE,
            ),
            rows,
        ),
    ]


def _with_library_lines(columns: tuple[Column, ...], rows: tuple[tuple[str, ...], ...]) -> Table:
    """The last cell of each row is the library's line: a column of its own where any has one."""
    if any(row[-1] for row in rows):
        return Table((*columns, Column("in", flexible=True)), rows)
    return Table(columns, tuple(row[:-1] for row in rows))


def _within(frame: Frame | None, library: Frame | None) -> str:
    """The library's line that the user's line has called."""
    return "" if library is None or library == frame else place(library)


def _host_reads(one: Simulation) -> list[Block]:
    computed = tuple(read for read in one.host_reads if not read.written)
    written = tuple(read for read in one.host_reads if read.written)
    blocks: list[Block] = [Text(), Text("The program read no value that only a kernel would have computed")]
    noted = {_line_of(read) for read in one.reads}
    past = tuple(read for read in computed if _line_of(read) not in noted)
    if one.reads:
        blocks = _unknown_reads(one.reads)
    if past:
        times = plural(sum(read.count for read in past), "time")
        blocks = (blocks if one.reads else []) + _reads(
            f"Values that no kernel has computed were read {times} past PyTorch, as zeros",
            "where the program's course depends on one, the answer does too",
            past,
        )
    if written:
        times = plural(sum(read.count for read in written), "time")
        blocks += _reads(
            f"Known values were read {times}", "written by the host, or computed for the simulation", written
        )
    return blocks


def _line_of(read: HostRead | UnknownRead) -> tuple[str, int] | None:
    return None if read.frame is None else (read.frame.file, read.frame.line)


def _unknown_reads(reads: tuple[UnknownRead, ...]) -> list[Block]:
    times = plural(sum(read.count for read in reads if read.kind != "branch"), "time")
    rows = tuple(
        (
            count(read.count),
            "compared" if read.kind == "branch" else read.dtype,
            count(read.elements),
            place(read.frame) if read.frame is not None else "(no Python line)",
            code(read.frame),
            _within(read.frame, read.library),
        )
        for read in reads
    )
    columns = (Column("reads", right=True), Column("type"), Column("elements", right=True), LINE, CODE)
    return [
        Text(),
        Text(f"Values that no kernel has computed were read {times}", "title"),
        Text("  as zeros unless a note says otherwise; the program's course may hang on one", "dim"),
        _with_library_lines(columns, rows),
    ]


def _reads(title: str, meaning: str, reads: tuple[HostRead, ...]) -> list[Block]:
    """A row per line, however many ways lead to it."""
    lines: dict[tuple[str, int] | None, list[HostRead]] = {}
    frames: dict[tuple[str, int] | None, Frame | None] = {}
    for read in reads:
        frames.setdefault(_line_of(read), read.frame)
        lines.setdefault(_line_of(read), []).append(read)
    groups = sorted(lines.items(), key=lambda item: -sum(read.count for read in item[1]))
    rows = tuple(
        (
            count(sum(read.count for read in group)),
            size(sum(read.bytes for read in group)),
            place(frame) if (frame := frames[key]) is not None else "(no Python line)",
            function(frame),
            code(frame),
        )
        for key, group in groups
    )
    return [
        Text(),
        Text(title, "title"),
        Text(f"  {meaning}", "dim"),
        Table(
            (
                Column("reads", right=True),
                Column("bytes", right=True),
                LINE,
                FUNCTION,
                CODE,
            ),
            rows,
            under=tuple(_parts_of(group) for _, group in groups),
        ),
    ]


def _parts_of(reads: Sequence[HostRead]) -> tuple[str, ...]:
    """The library's lines that read, below one of the user's."""
    below = [(library_line(read.stack), read.count) for read in reads]
    said = lines_below((frame, number) for frame, number in below if frame is not None)
    return (said,) if said else ()


def _entries(one: Simulation) -> list[Block]:
    lines = [f"  {entry.name}, {plural(entry.count, 'call')}: not simulated, refused" for entry in one.refused]
    lines += [f"  {entry.name}, {plural(entry.count, 'call')}: not described yet" for entry in one.undescribed]
    return [Text(), Text("Asked for and not there", "title"), *map(Text, lines)] if lines else []


def _attempts(one: Simulation) -> list[Block]:
    if not one.attempts:
        return []
    rows = tuple((row.what, "" if row.used is None else size(row.used), row.outcome) for row in one.attempts)
    return [
        Text(),
        Text("Run again", "title"),
        Table((Column("with"), Column("device used", right=True), Column("outcome", flexible=True)), rows),
    ]
