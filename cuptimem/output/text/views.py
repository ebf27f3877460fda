"""What each verb shows, as blocks. Numbers carry their unit and their device; what is lost is always said."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from cuptimem.output.text import (
    account_views,
    advice_views,
    diff_views,
    fragmentation_views,
    garbage_views,
    held_views,
    host_views,
    kernel_views,
    leak_views,
    ledger_views,
    oom_views,
    peak_views,
    process_views,
    step_ends,
    table_views,
    tree_views,
)
from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.clock_views import counted_by, loop_lines, notes
from cuptimem.output.text.peak_views import asked, lines_table, moment
from cuptimem.output.text.words import count, duration, first_loops, median, plural, signed, size
from cuptimem.report import logged, own_code
from cuptimem.report.account import Account
from cuptimem.report.diff import DeviceDiff
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.host import Host
from cuptimem.report.kernels import Kernels
from cuptimem.report.ledger import Ledger
from cuptimem.report.line_holders import LineHolders
from cuptimem.report.model import Contents, Device, Report, Step

_TOP = 6  # with all else that a training has, a screen of 24 lines


_FACTS = {
    logged.PHASE: "{}",
    "exception": "ended by {}",
    "simulated": "simulated {}",
    "torch": "torch {}",
    "python": "Python {}",
    "role": "{}",
    "rank": "rank {}",
    "pid": "pid {}",
}
_LOST = {
    "events": "{} events found no room and are lost: live bytes are wrong by them",
    "stacks": "{} stacks found no room: their blocks have no line",
    "cut": "{} stacks or names are longer than a recording may hold (1,024 calls, 4,096 bytes): they are cut",
    "unshown": "{} stacks are left out: all together they are too large for so small a file",
    "replaced": "{} blocks were replaced without a free: some frees were not seen",
    "unknown_frees": "{} frees of blocks that were made before recording",
    "seeds_skipped": "{} tensors alive at the start could not be looked at",
}
_DEVICE_COLUMNS: tuple[tuple[Column, Callable[[Device, Report], str]], ...] = (
    (Column("device"), lambda device, _: device.name),
    (Column("peak", right=True, style="strong"), lambda device, _: size(device.peak.bytes)),
    (
        Column("in step", right=True, optional=2),
        lambda device, _: "" if device.peak.step is None else str(device.peak.step),
    ),
    (Column("at start", right=True, optional=3), lambda device, _: size(device.start)),
    (
        Column("above start", right=True, optional=1),
        lambda device, report: f"{'≥ ' if report.compacted else ''}{size(device.peak_above_start)}",
    ),
    (Column("at end", right=True, optional=1), lambda device, _: size(device.end)),
    (Column("allocations", right=True, optional=5), lambda device, _: count(device.allocations)),
    (Column("allocated in all", right=True, optional=4), lambda device, _: size(device.allocated)),
    (
        Column("reserved", right=True, optional=1),
        lambda device, _: "" if device.reserved_peak is None else size(device.reserved_peak),
    ),
)
_STEP_COLUMNS: tuple[
    tuple[Column, Callable[[Step, int], str]], ...
] = (  # int: live bytes at the end of the step before
    (Column("step", right=True), lambda step, _: f"{step.index}{'*' * step.incomplete}"),
    (Column("loop"), lambda step, _: step.loop),
    (Column("device"), lambda step, _: step.device),
    (Column("time", right=True, optional=4), lambda step, _: duration(step.end_ns - step.begin_ns)),
    (Column("start", right=True, optional=3), lambda step, _: size(step.start)),
    (Column("peak", right=True, style="strong"), lambda step, _: size(step.peak)),
    (Column("end", right=True), lambda step, _: size(step.end)),
    (Column("change", right=True), lambda step, before: signed(step.end - before)),
    (Column("allocated", right=True, optional=1), lambda step, _: size(step.allocated)),
    (Column("freed", right=True, optional=2), lambda step, _: size(step.freed)),
    (Column("allocations", right=True, optional=5), lambda step, _: count(step.allocations)),
)


# -- shared parts --------------------------------------------------------------------------------------------------


def facts(report: Report) -> list[str]:
    """What was recorded: its name first."""
    environment = report.environment
    parts = [
        report.title,
        duration(report.duration_ns),
        f"{count(report.allocations)} {'allocation' if report.allocations == 1 else 'allocations'}",
    ]
    if report.threads > 1:
        parts.append(f"{report.threads} threads")
    parts += [form.format(environment[key]) for key, form in _FACTS.items() if environment.get(key)]
    return parts


def heading(report: Report) -> list[Block]:
    return [Text(" · ".join(facts(report)), "title", breaks=" · "), *_own_code(report), *caveats(report)]


def _own_code(report: Report) -> list[Block]:
    if not report.code:
        return []
    files = {frame.file for peak in report.peaks for c in peak.contributors for frame in c.stack}
    absent = [name for name in report.code if not any(map(own_code.matcher([name]), files))]
    said = f" (the peak has none of {', '.join(absent)})" if absent else ""
    return [Text(f"  lines of {', '.join(report.code)} count as the user's{said}", "dim")]


def _without_steps(report: Report, contents: Contents) -> list[Block]:
    if contents.what != "temporary" or report.steps:
        return []
    return [Text("! no steps were seen, so that nothing is known to be temporary", "warning")]


def simulated_reads(report: Report) -> list[Block]:
    """On a simulated device: how often the program read what is no result."""
    number = sum(read.count for read in report.host_reads if not read.written)
    if not number:
        return []
    said = f"{plural(number, 'host read')} of values that no kernel has computed; `cuptimem summary --json` lists them"
    return [Text(f"! {said}", "warning")]


def caveats(report: Report) -> list[Block]:
    """Everything that makes the numbers less than the whole truth."""
    said: list[str] = []
    if report.state == "recording":
        said.append("still recording: this is what was written so far")
    elif report.state == "recovered":
        said.append("the program was killed, or left by os._exit; everything it recorded until then is here")
    elif report.state == "cut":
        why = report.reason or "the program was killed, or the file was cut or damaged"
        said.append(f"the end of the recording is missing: {why}")
    elif report.reason:
        known = report.reason.startswith("recording ended")
        said.append(report.reason if known else f"recording ended early: {report.reason}")
    if report.environment.get("exec"):
        said.append(
            f"the recording ends where the process became another program (exec of {report.environment['exec']})"
        )
    said += filter(None, report.environment.get("problems", "").split("\n"))
    said += _of_snapshot(report)
    if report.compacted is not None:
        compacted = report.compacted
        where = f"steps {max(compacted.from_step, 0)} to {compacted.to_step}" if compacted.to_step >= 0 else "no step"
        said.append(
            "past its bound (max_size) the trace keeps sums, survivors and peaks: "
            f"{count(compacted.events)} events of {where} are compacted"
        )
    said += [text.format(count(lost)) for name, text in _LOST.items() if (lost := getattr(report.lost, name))]
    for device in report.devices:
        check = device.check
        if check is not None and check.differ:
            said.append(
                f"{device.name}: its allocator said that {check.reported} bytes were given out, "
                f"recorded were {check.live} "
                f"(it differed {count(check.differ)} of {count(check.checked)} times): events are missing"
            )
    return [Text(f"! {line}", "warning") for line in said]


def _of_snapshot(report: Report) -> list[str]:
    """What a memory snapshot of PyTorch's does not say, where it is one."""
    kept = report.environment.get("snapshot")
    said = []
    if kept == "blocks":
        said.append("a snapshot without history: what was alive when it was taken; no times, no steps, nothing freed")
    elif kept and "snapshot.exporter" not in report.environment and any(device.start for device in report.devices):
        said.append("the snapshot's history lacks its beginning: blocks from before have a line if alive at its end")
    if missing := report.environment.get("snapshot.missing"):
        said.append(f"it was exported from a recording: {missing}")
    if unknown := report.environment.get("snapshot.unknown"):
        said.append(f"the snapshot has what this cuptimem does not know, which is left out: {unknown}")
    return said


def file_hint(report: Report, *commands: str) -> list[Block]:
    if report.path is None or not os.path.exists(report.path):
        return []
    from cuptimem.naming import typed

    path = typed(report.path)
    said = "   ".join(f"cuptimem {command} {path}" for command in commands)
    return [Text(), Text(f"Next: {said}", "dim", hang=6, breaks="   ")]


# -- summary -------------------------------------------------------------------------------------------------------


def summary(report: Report, at: str = "peak") -> list[Block]:
    """What a tired person needs: how high, what of, is it growing, what next. at: or what is alive at the "end"."""
    blocks = [*heading(report), *simulated_reads(report)]
    level = ledger_views.short(report)
    if not report.devices:
        more = [*level, *file_hint(report, "ledger")] if report.ledgers else []
        return blocks + _nothing(report) + more
    blocks += [Text(), _devices(report), *_caching(report), *level]
    blocks += [oom_views.left(oom) for oom in report.ooms if oom.escaped]
    blocks += oom_views.caught(report)
    for device in report.devices:
        contents = report.contents(at, device.name)
        if contents.bytes == 0 and device.peak.bytes == 0:
            continue
        what = "What the peak on {} is made of" if at == "peak" else "What is alive on {}"
        when = held_views.at_end(report) if at == "end" else moment(contents, logged.numbers(report))
        title = f"{what.format(device.name)}: {size(contents.bytes)}, {when}"
        blocks += [Text(), Text(title, "title"), *account_views.short(contents)]
        blocks += garbage_views.at_peak(report, contents)
        blocks += lines_table(contents, _TOP if device is report.devices[0] else 5)
    advised = advice_views.short(report)
    blocks += [Text(), *advised] if advised else []
    leaks = leak_views.short(report)
    blocks += [Text(), *leaks, *process_views.causes(report)]
    if len(leaks) > 1:  # one line needs none between
        blocks.append(Text())
    blocks += [*_trend(report), *host_views.short(report)]
    if report.backward.unresolved:
        part = f"{size(report.backward.unresolved)} of {size(report.backward.bytes)}"
        blocks.append(Text(f"! {part} allocated in backward could not be joined to a forward line", "warning"))
    refused = any(row.what == "oom" for row in report.fragmentations)
    first = [
        *(["peak --at oom"] if report.ooms else []),
        *(["fragmentation"] if refused else []),
        *(["leaks"] if report.leaks or report.undecided else []),
        *(["ledger"] if report.ledgers else []),
        *(["host"] if host_views.report_findings(report) else []),
        *(["advice"] if advised else []),
    ]
    return blocks + file_hint(report, *first, "peak", *(["steps"] if report.steps else []), "timeline")


def _nothing(report: Report) -> list[Block]:
    where = "in what is left of the recording" if report.state == "cut" else "while this was recorded"
    return [Text(), Text(f"Nothing was allocated by PyTorch {where}.")]


def _devices(report: Report) -> Table:
    left_out = set() if any(device.start for device in report.devices) else {"above start"}
    columns = [(column, cell) for column, cell in _DEVICE_COLUMNS if column.name not in left_out]
    rows = [tuple(cell(device, report) for _, cell in columns) for device in report.devices]
    if report.resident:
        process = {
            "device": "whole process",
            "peak": size(max(point.bytes for point in report.resident)),
            "at start": size(report.resident[0].bytes),
            "at end": size(report.resident[-1].bytes),
        }
        rows.append(tuple(process.get(column.name, "") for column, _ in columns))
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return Table(tuple(columns[i][0] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))


def _caching(report: Report) -> list[Block]:
    """What the caching allocator adds to tensors, a line per device."""
    blocks: list[Block] = []
    for device in report.devices:
        said = [f"peak {size(device.peak.bytes)}"]
        requested = asked(report, device.peak)
        if requested:
            said[0] += f" ({requested})"
        if device.reserved_peak is not None:
            said.append(f"reserved at most {size(device.reserved_peak)}")
        if device.segments is not None:
            segments = device.segments
            said.append(f"{plural(segments.count, 'segment')} at the end, {size(segments.bytes)}")
        if requested or device.segments is not None:
            blocks.append(Text(f"  {device.name}: " + ", ".join(said), "dim"))
    return blocks


def _trend(report: Report) -> list[Block]:
    """What the steps did, loop by loop: an evaluation's steps say nothing about how a training grows."""
    if not report.steps:
        why = "no optimizer step, no backward pass, no data loader, no prof.step(), no repeated call of one module"
        return [Text(f"Steps: none were seen ({why})")]
    blocks: list[Block] = []
    for device in report.devices:
        steps = [step for step in report.steps.ended if step.device == device.name]
        if not steps:
            continue
        followers = step_ends.followers(report, steps)
        loops: dict[str, list[Step]] = {}
        for step in steps:
            loops.setdefault(step.loop, []).append(step)
        counts = {loop: len(part) for loop, part in loops.items()}
        named, rest = first_loops(counts)
        if not blocks:
            split = f": {_loops(counts)}" if len(loops) > 1 else ""
            if own := list(logged.numbers(report).values()):
                split += f"; in the logs {own[0]} to {own[-1]}"
            blocks.append(Text(f"Steps: {len(steps)}, counted by {counted_by(report.clock)}{split}", "title"))
            blocks += [*notes(report.clock), *(loop_lines(report) if any(" 2" in loop for loop in named) else ())]
        for loop in named:
            peaks = [step.peak for step in loops[loop]]
            name = f"{device.name}, {loop}" if len(loops) > 1 else device.name
            blocks.append(Text(f"  {name}: {_peaks(peaks)}; {step_ends.growth(loops[loop], followers)}"))
        if rest:
            blocks.append(Text(f"  {device.name}: {rest}: cuptimem steps --all, or --json", "dim"))
    if not blocks:
        blocks.append(Text(f"Steps: none has ended, counted by {counted_by(report.clock)}", "title"))
    return [*blocks, *incomplete(report, "  "), *process_views.trend(report)]


def incomplete(report: Report, before: str = "* ") -> list[Block]:
    """The step that an exception cut short, which no rate, median or verdict is of."""
    rows = [step for step in report.steps if step.incomplete]
    if not rows:
        return []
    cause = report.environment.get("exception") or "a request was refused"
    moments = [f"{step.device} peak {size(step.peak)}, {size(step.end)} live at the end" for step in rows]
    return [Text(f"{before}step {rows[0].index} did not end: {cause}; {'; '.join(moments)}")]


def _loops(loops: dict[str, int], several: bool = True) -> str:
    """40 training, 20 evaluation"""
    named, rest = first_loops(loops)
    return ", ".join(
        [*(f"{loops[loop]} {loop}" if several else str(loops[loop]) for loop in named), *filter(None, [rest])]
    )


def _peaks(peaks: list[int]) -> str:
    """The range and the median; one size where they read the same."""
    low, high = size(min(peaks)), size(max(peaks))
    return (
        f"peak per step {low}" if low == high else f"peak per step {low} to {high}, median {size(int(median(peaks)))}"
    )


# -- peak ----------------------------------------------------------------------------------------------------------


def peak(report: Report, all_contents: Sequence[Contents], top: int) -> list[Block]:
    """The contributors one by one: the user's line, the library line below it, modules, operator."""
    blocks = [*heading(report), *simulated_reads(report)]
    return blocks + (peak_views.full(report, all_contents, top) if all_contents else _nothing(report))


# -- leaks ---------------------------------------------------------------------------------------------------------


def leaks(report: Report, top: int, holders: bool = True) -> list[Block]:
    """What grows, or that nothing does, or why nobody can tell."""
    blocks = heading(report)
    return blocks + (leak_views.full(report, top, holders) if report.devices else _nothing(report))


# -- holders -------------------------------------------------------------------------------------------------------


def holders(report: Report, found: Sequence[LineHolders], top: int) -> list[Block]:
    """Who held the memory of these lines, at the end and as they grew."""
    blocks = heading(report)
    for one in found[:top]:
        blocks += [Text(), *held_views.entry(report, one), *leak_views.held_as_it_grew(one)]
    if found[top:]:
        blocks += [Text(), Text(f"  {plural(len(found) - top, 'more line')} (--top {len(found)})", "dim")]
    return blocks


# -- the driver level ----------------------------------------------------------------------------------------------


def ledger(report: Report, ledgers: Sequence[Ledger], top: int) -> list[Block]:
    """Who has the devices' used bytes."""
    more = [*(["peak"] if report.devices else []), *(["fragmentation"] if report.fragmentations else [])]
    hints = file_hint(report, *more) if more else []
    return [*heading(report), *ledger_views.full(report, ledgers, top), *hints]


def host(report: Report, one: Host, top: int) -> list[Block]:
    """Who has the host's memory."""
    return [*heading(report), *host_views.full(report, one, top), *file_hint(report, "summary")]


def host_now(one: Host, top: int) -> list[Block]:
    """The same of a process that runs now."""
    return host_views.now(one, top)


def fragmentation(report: Report, rows: Sequence[Fragmentation], top: int) -> list[Block]:
    """What PyTorch's allocator has and cannot give out."""
    return [*heading(report), *fragmentation_views.full(rows, top, report.environment.get("torch", ""))]


def kernels(report: Report, one: Kernels, top: int) -> list[Block]:
    """Kernels beside the memory that waited for them."""
    return [*heading(report), *kernel_views.full(one, top)]


# -- steps ---------------------------------------------------------------------------------------------------------


def steps(report: Report, rows: tuple[Step, ...], left_out: int) -> list[Block]:
    """One row per step and device, with the change of live bytes against the step before."""
    blocks = heading(report)
    if not report.steps:
        return [*blocks, Text(), *_trend(report)]
    blocks += [Text(), Text(f"Counted by {counted_by(report.clock)}", "title"), *notes(report.clock)]
    blocks += loop_lines(report)
    blocks.append(steps_table(report.steps, rows, logged.numbers(report)))
    if any(step.incomplete for step in rows):
        blocks += incomplete(report)
    if left_out:
        blocks.append(Text(f"  {count(left_out)} rows in between are not shown (all of them: --all)", "dim"))
    return blocks


def steps_table(
    all_steps: Sequence[Step], rows: Sequence[Step], own: Mapping[int, int] = MappingProxyType({})
) -> Table:
    """Some of the steps, in their order; the change is that against the step before, shown or not. own: their numbers
    in the program's logs."""
    alike = {name for name in ("loop", "device") if len({getattr(step, name) for step in all_steps}) < 2}
    columns = [(column, cell) for column, cell in _STEP_COLUMNS if column.name not in alike]
    if own:
        columns.insert(1, (Column("logged as", right=True), lambda step, _: str(own.get(step.index, ""))))
    cells: list[tuple[str, ...]] = []
    last = rows[0].index if rows else 0
    ends = {(step.device, step.index): step.end for step in all_steps}
    for step in rows:
        if step.index > last + 1:
            cells.append(("…", *[""] * (len(columns) - 1)))
        last = step.index
        before = ends.get((step.device, step.index - 1), step.start)
        cells.append(tuple(cell(step, before) for _, cell in columns))
    return Table(tuple(column for column, _ in columns), tuple(cells))


# -- table ---------------------------------------------------------------------------------------------------------


def table(
    report: Report, contents: Contents | None, by: str, order: str, top: int, depth: int | None = None
) -> list[Block]:
    """The blocks, summed by one property."""
    blocks = heading(report)
    if contents is None:
        return blocks + _nothing(report)
    return [*blocks, *_without_steps(report, contents), *table_views.full(contents, by, order, top, depth)]


# -- account -------------------------------------------------------------------------------------------------------


def account(report: Report, accounts: Sequence[Account], top: int) -> list[Block]:
    """The peaks by category and module, in exact bytes."""
    return heading(report) + (account_views.full(accounts, top) if accounts else _nothing(report))


# -- diff ----------------------------------------------------------------------------------------------------------


def diff(before: Report, after: Report, devices: list[DeviceDiff], named: str | None, top: int) -> list[Block]:
    """What is different in the second of two recordings."""
    blocks: list[Block] = []
    for name, report in (("before", before), ("after", after)):
        first, *others = heading(report)
        assert isinstance(first, Text)
        blocks += [replace(first, text=f"{name + ':':<8}{first.text}"), *others]
    several = max(len(report.loops) for report in (before, after)) > 1
    counts = [_loops(report.loops, several) for report in (before, after)]
    return blocks + (diff_views.full(devices, named, top, counts) if devices else _nothing(after))


# -- tree ----------------------------------------------------------------------------------------------------------


def tree(report: Report, all_contents: Sequence[Contents], least: float, inverted: bool) -> list[Block]:
    """The blocks by their stacks."""
    blocks = heading(report)
    if not all_contents:
        return blocks + _nothing(report)
    blocks += _without_steps(report, all_contents[0])
    return blocks + [block for one in all_contents for block in tree_views.full(one, least, inverted)]
