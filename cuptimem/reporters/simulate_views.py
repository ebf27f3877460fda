"""What `cuptimem simulate` shows: the verdict first, then what it rests on."""

import os

from cuptimem.report import HostRead, Report
from cuptimem.reporters.blocks import Block, Column, Style, Table, Text
from cuptimem.reporters.views import lines_table
from cuptimem.reporters.words import code, count, duration, function, plural, size
from cuptimem.simulation.result import DeviceUse, Interval, Simulation

_TOP = 10


def simulation(report: Report, one: Simulation) -> list[Block]:
    """All of it."""
    blocks: list[Block] = [Text(_heading(report, one), "title"), Text(), *_verdict(one)]
    if one.devices:
        blocks += [Text(), _devices(one)]
    blocks += _peak(one)
    blocks += _modelled(one)
    blocks += _assumptions(one)
    blocks += _host_reads(one)
    blocks += _entries(one)
    blocks += _attempts(one)
    if one.notes:
        blocks += [Text(), *(Text(f"! {note}", "warning") for note in one.notes)]
    if report.path is not None and os.path.exists(report.path):
        from cuptimem.naming import shown

        blocks += [Text(), Text(f"Next: cuptimem summary {shown(report.path)}", "dim")]
    return blocks


def _heading(report: Report, one: Simulation) -> str:
    name = os.path.basename(report.environment.get("script", "")) or "program"
    devices = f"{len(one.devices)} x " if len(one.devices) > 1 else ""
    return (
        f"simulated on {devices}{one.card}, {size(one.memory)} · {name} · {duration(int(one.seconds * 1e9))} · "
        f"torch {one.torch} (CUDA {one.cuda})"
    )


def _verdict(one: Simulation) -> list[Block]:
    memory = size(one.memory)
    if one.verdict == "fits":
        head = f"FITS in {memory}"
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
    if one.need is not None:
        blocks += _need(one)
    blocks += [Text(f"  {hint}") for hint in one.hints]
    return blocks


def _need(one: Simulation) -> list[Block]:
    need = one.need
    assert need is not None
    if need.takes_everything:
        return [Text("  the program takes whatever is free: what it needs is not to be told this way")]
    if need.low == need.high:
        lines = [f"  it needs {size(need.high)} on {need.device}"]
    else:
        lines = [
            f"  it needs between {size(need.low)} (tensors, context, libraries) and {size(need.high)} (with which it "
            f"ran) on {need.device}"
        ]
    if one.smallest_card is not None:
        lines.append(f"  the smallest card on which it ran: {one.smallest_card}")
    return [Text(line) for line in lines]


def interval(one: Interval | None) -> str:
    """12.1 GiB; 12.1 to 12.4 GiB; at least 12.1 GiB"""
    if one is None:
        return ""
    if one.high is None:
        return f"at least {size(one.low)}"
    low, high = size(one.low), size(one.high)
    return low if low == high else f"{low} to {high}"


def _devices(one: Simulation) -> Table:
    def row(device: DeviceUse) -> tuple[str, ...]:
        return (
            device.device,
            interval(device.allocated),
            interval(device.reserved),
            interval(device.used),
            size(device.total),
            count(device.refused) if device.refused else "",
        )

    columns = (
        Column("device"),
        Column("peak allocated", right=True),
        Column("reserved", right=True),
        Column("device used", right=True, style="strong"),
        Column("of", right=True),
        Column("refused", right=True),
    )
    return Table(columns, tuple(row(device) for device in one.devices))


def _peak(one: Simulation) -> list[Block]:
    peak = one.peak
    if peak is None:
        return []
    where = ", in the run without a limit" if one.need is not None else ""
    return [
        Text(),
        Text(f"What the peak on {peak.device} is made of: {size(peak.bytes)} in tensors{where}", "title"),
        lines_table(peak.lines, peak.bytes, _TOP, peak.rest_bytes, peak.rest_count),
    ]


def _modelled(one: Simulation) -> list[Block]:
    if not one.modelled:
        return []
    rows = tuple(
        (
            row.name,
            interval(Interval(row.bytes, row.bytes if row.high_bytes is None else row.high_bytes))
            if row.bytes or row.high_bytes
            else "",
        )
        for row in one.modelled
    )
    return [
        Text(),
        Text("Modelled, not PyTorch's own", "title"),
        Table((Column("part", flexible=True), Column("at most", right=True)), rows),
    ]


def _assumptions(one: Simulation) -> list[Block]:
    if not one.assumptions:
        return []
    rows = tuple(
        (row.operator, f"{row.fraction:g}", count(row.count), row.frame.place, code(row.frame))
        for row in one.assumptions
    )
    given = all(row.given for row in one.assumptions)
    return [
        Text(),
        Text(
            f"Sizes that depend on values, assumed{'' if given else ' (--assume OPERATOR=SHARE says otherwise)'}",
            "title",
        ),
        Table(
            (
                Column("operator"),
                Column("share", right=True),
                Column("times", right=True),
                Column("line", flexible=True, keep_end=True),
                Column("code", flexible=True, style="dim"),
            ),
            rows,
        ),
    ]


def _host_reads(one: Simulation) -> list[Block]:
    computed = tuple(read for read in one.host_reads if not read.written)
    written = tuple(read for read in one.host_reads if read.written)
    blocks: list[Block] = [Text(), Text("The program read no value that a kernel would have computed")]
    if computed:
        times = plural(one.host_read_count, "time")
        blocks = _reads(
            f"Values that no kernel has computed were read {times} (as zeros); where the program's course depends on "
            "one, the answer does too",
            computed,
        )
    if written:
        times = plural(sum(read.count for read in written), "time")
        blocks += _reads(f"What the host had written was read back {times}: right unless a kernel changes it", written)
    return blocks


def _reads(title: str, reads: tuple[HostRead, ...]) -> list[Block]:
    rows = tuple(
        (
            count(read.count),
            size(read.bytes),
            read.frame.place if read.frame is not None else "(no Python line)",
            function(read.frame),
            code(read.frame),
        )
        for read in reads
    )
    return [
        Text(),
        Text(title, "title"),
        Table(
            (
                Column("reads", right=True),
                Column("bytes", right=True),
                Column("line", flexible=True, keep_end=True),
                Column("function", flexible=True),
                Column("code", flexible=True, style="dim"),
            ),
            rows,
        ),
    ]


def _entries(one: Simulation) -> list[Block]:
    lines = [f"  {entry.name}, {plural(entry.count, 'call')}: not simulated, refused" for entry in one.refused]
    lines += [f"  {entry.name}, {plural(entry.count, 'call')}: nobody has described it" for entry in one.undescribed]
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
