"""Who has a device's used bytes, in words: the body of `cuptimem ledger` and its place in the summary."""

from collections.abc import Sequence

from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Style, Table, Text
from cuptimem.output.text.words import code, count, duration, function, place, plural, share, size
from cuptimem.report.ledger import PARTS, DriverAllocations, DriverDevice, DriverLevel, Ledger, LedgerLine, split_reason
from cuptimem.report.libraries import library_name
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame

_IN_SUMMARY = 5  # libraries

_KINDS = {
    "managed": "managed",
    "host": "page-locked",
    "registered": "registered",
    "async": "stream-ordered",
    "physical": "virtual memory",
    "imported": "imported",
    "array": "array",
    "ipc": "another process's",
    "external": "another API's",
    "graph": "graph memory",
    "multicast": "multicast",
}


def prose(text: str, style: Style = "", mark: str = "  ", breaks: str = "") -> list[Block]:
    """A paragraph, with its mark."""
    return [Text(mark + text, style, hang=len(mark), breaks=breaks, prose=True)]


def warning(text: str) -> list[Block]:
    return prose(text, "warning", "! ")


def what(library: str, kind: str) -> str:
    """NCCL; NCCL, virtual memory"""
    owner = library_name(library) or "(unknown)"
    return f"{owner}, {_KINDS[kind]}" if kind in _KINDS else owner


def where(frame: Frame | None, stack_lost: bool) -> str:
    if frame is not None:
        return place(frame)
    return "(stack lost)" if stack_lost else "(no Python line)"


def _phase(backward: bool) -> str:
    return "backward" if backward else ""


def moment(time_ns: int, step: int | None) -> str:
    inside = f"in step {step}, " if step is not None else ""
    return f"{inside}{duration(time_ns)} after the start"


# -- the table -----------------------------------------------------------------------------------------------------


_COLUMNS = (
    Column("used", right=True, style="strong"),
    Column("share", right=True, optional=1),
    Column("count", right=True, optional=1),
    Column("what", flexible=True),
    Column("phase", optional=1),
    LINE,
    FUNCTION,
    CODE,
)

_Cells = tuple[str, ...]


def _driver_rows(lines: Sequence[LedgerLine], used: int, top: int) -> list[_Cells]:
    """By library, kind and user line, the largest first; the others in one row."""
    groups: dict[tuple[object, ...], list[LedgerLine]] = {}
    for line in lines:
        frame = line.frame
        place: object = line.stack_lost if frame is None else (frame.file, frame.line)
        groups.setdefault((what(line.library, line.kind), line.backward, place), []).append(line)
    merged = sorted(
        ((sum(one.bytes for one in group), sum(one.count or 0 for one in group), group) for group in groups.values()),
        key=lambda row: -row[0],
    )
    rows: list[_Cells] = [
        (
            size(total),
            share(total, used),
            count(number),
            what(group[0].library, group[0].kind),
            _phase(group[0].backward),
            where(group[0].frame, group[0].stack_lost),
            function(group[0].frame),
            code(group[0].frame),
        )
        for total, number, group in merged[:top]
    ]
    left = merged[top:]
    if left:
        total = sum(row[0] for row in left)
        number = sum(row[1] for row in left)
        rows.append(
            (size(total), share(total, used), count(number), f"({plural(len(left), 'more line')})", "", "", "", "")
        )
    return rows


def _table(one: Ledger, top: int) -> Table:
    rows: list[_Cells] = []
    for part in PARTS:
        if part == "driver":
            rows += _driver_rows(one.driver, one.used, top)
            continue
        line = next((line for line in one.lines if line.part == part), None)
        if line is None:
            if part in ("context", "others"):
                rows.append(("not known", "", "", PARTS[part], "", "", "", ""))
        elif line.bytes or part not in ("driver rounding", "pool slack"):
            rows.append((size(line.bytes), share(line.bytes, one.used), "", line.name, "", "", "", ""))
    rows.append((size(one.used), share(one.used, one.used), "", "in all", "", "", "", ""))
    kept = [i for i in range(len(_COLUMNS)) if any(row[i] for row in rows)]
    return Table(tuple(_COLUMNS[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))


def _is_seen(part: int, whole: int) -> bool:
    """Whether a reader who adds up the others would miss it."""
    return size(whole - part) != size(whole)


# -- headlines -----------------------------------------------------------------------------------------------------


def parts(one: Ledger, libraries: int) -> str:
    """tensors 60.1 GiB, cached 20.3 GiB, NCCL 8.0 GiB, context 512.0 MiB, residual 0 B"""
    said = [f"tensors {size(one.tensors)}"]
    said += [f"rounding {size(one.rounding)}"] if _is_seen(one.rounding, one.used) else []
    said += [f"cached {size(one.cached)}"] if one.cached else []
    named = list(one.libraries.items())
    said += [f"{name} {size(total)}" for name, total in named[:libraries]]
    if len(named) > libraries:
        others = sum(total for _, total in named[libraries:])
        said.append(f"{len(named) - libraries} other libraries {size(others)}")
    said += [f"driver rounding {size(one.driver_rounding)}"] if _is_seen(one.driver_rounding, one.used) else []
    said += [f"pool slack {size(one.pool_slack)}"] if one.pool_slack else []
    context = "context" if one.context_measured else "context and earlier"
    said += [f"{context} {size(one.context)}"] if one.context is not None else []
    said += [f"other processes {size(one.others)}"] if one.others else []
    said += [f"the host's memory {size(one.host)}"] if one.host else []
    said += [f"page cache {size(one.page_cache)}"] if one.page_cache else []
    said.append(f"residual {size(one.residual)}")
    return ", ".join(said)


def _moment_name(one: Ledger) -> str:
    return {"peak": "at its fullest", "end": "at the end", "asked": ""}[one.what]


def _headline(one: Ledger) -> str:
    of = f" of {size(one.total)}" if one.total is not None else ""
    name = _moment_name(one)
    return f"{one.device}: {size(one.used)}{of} used{f' {name}' if name else ''}, {moment(one.time_ns, one.step)}"


def _answer(one: Ledger, complete: bool) -> list[Block]:
    """Why PyTorch says less than the device: one sentence."""
    blocks = one.tensors + one.rounding
    reserved = blocks + one.cached
    beside = one.used - reserved
    if reserved == 0 and not complete:
        return prose(f"What of it is PyTorch's was not seen: {parts(one, _IN_SUMMARY)}.", breaks="[,:] ")
    if reserved == 0:
        return prose(f"Nothing of it is PyTorch's: {parts(one, _IN_SUMMARY)}.", breaks="[,:] ")
    said = f"PyTorch's tensors have {size(blocks)} of it, its allocator holds {size(reserved)}"
    return prose(f"{said}; {size(beside)} lie outside of that." if beside > 0 else f"{said}.")


def _unmeasured(report: Report, one: Ledger) -> str:
    """The device is asked from time to time: what PyTorch's allocator alone held in between, where that was more."""
    highest = next((device.reserved_peak for device in report.devices if device.name == one.device), None)
    above = (highest or 0) - one.tensors - one.rounding - one.cached
    if one.what != "peak" or above <= one.used // 100:
        return ""
    held = f"PyTorch's allocator held up to {size(highest or 0)}, {size(above)} more than here"
    return f"{one.device}: between two measurements {held}"


def _tensors_elsewhere(report: Report, one: Ledger) -> str:
    """Where tensors alone had their peak, if they had clearly more there than at the device's fullest moment."""
    peak = next((device.peak for device in report.devices if device.name == one.device), None)
    more = 0 if peak is None else peak.bytes - one.tensors - one.rounding
    if peak is None or one.what != "peak" or more <= one.used // 100:
        return ""
    when = "before" if peak.time_ns < one.time_ns else "behind"
    said = f"Tensors had {size(more)} more at their peak ({size(peak.bytes)}), {moment(peak.time_ns, peak.step)}"
    cached = "what they gave back stays in PyTorch's cache, and others took more"
    return f"{said}, {when} this moment: {cached if when == 'before' else 'others had less by then'}."


def _other_moments(report: Report, one: Ledger) -> list[Block]:
    """Why a figure elsewhere may be larger than one here."""
    if said := _unmeasured(report, one):
        return warning(said)
    return prose(said, "dim") if (said := _tensors_elsewhere(report, one)) else []


# -- what is not known ---------------------------------------------------------------------------------------------


def _unknown(one: Ledger) -> list[Block]:
    """What a reader must know before he believes a line."""
    said: list[Block] = []
    if one.context is None:
        said += prose(
            "The context is not known: there was no moment yet at which nothing moved. It is in the residual.", "dim"
        )
    elif not one.context_measured:
        said += prose(
            "Context and earlier: in use before the driver level was recorded. Other memory from that time stands in "
            "it, too.",
            "dim",
        )
    if one.is_host_memory:
        said += prose(
            "This device's memory is the host's: used is what CUDA says of the whole machine. The host's memory is "
            "what processes and the kernel have (/proc/meminfo). The kernel gives the page cache back where memory is "
            "wanted.",
            "dim",
        )
    if one.others is None:
        place = "the residual" if one.context is None else "the context (what came later in the residual)"
        said += prose(f"Memory of other processes is not known, for NVML does not report it: it is in {place}.", "dim")
    if one.own is not None:
        said += prose(f"NVML gives {size(one.own)} to this process.", "dim")
    if one.driver_reserved:
        said += prose(f"Driver and firmware keep {size(one.driver_reserved)} beside all this.", "dim")
    if not one.quiet:
        said += warning(
            f"{one.device}: memory was given out or taken back while the driver was asked, so the residual may be off "
            "by as much as moved"
        )
    if one.pool_short:
        said += warning(
            f"{one.device}: memory pools report {size(one.pool_short)} less than is alive in them; that much "
            "is in the residual"
        )
    if one.residual > 0 and one.context is not None:
        said += prose("Residual: in use, not traced to a recorded caller.", "dim")
    elif one.residual < 0:
        said += warning(
            f"{one.device}: {size(-one.residual)} more are accounted for than are in use: some frees were not seen, or "
            "the driver was asked between two of them"
        )
    return said


def exactness(report: Report) -> list[Block]:
    """How the driver level was recorded, and what speaks against it."""
    said: list[Block] = []
    driver = report.driver
    check = driver.record_check
    if driver.mode == "slots":
        cause, fix = split_reason(driver.reason)
        said += warning(
            f"CUPTI did not see all of it: {cause}. Without it only calls of the CUDA runtime by libraries that can be "
            "patched are seen. Incomplete: the lines of libraries, driver rounding, page-locked host memory; with "
            "expandable segments tensors, rounding and PyTorch's cache, too. What they lack is in the context if it "
            "was there at the first quiet moment, else in the residual."
        )
        said += prose(f"What to do: {fix}.") if fix else []
    elif driver.mode == "unknown":
        said += warning(f"{driver.reason}: whether all of the driver level was seen is not known")
    elif driver.mode == "none":
        said += warning(
            f"the driver level was not recorded ({driver.reason}): all that is not PyTorch's is in the residual"
        )
    elif driver.reason:
        said += warning(driver.reason)
    if report.environment.get("driver.time_base_changed") == "yes":
        said += warning("another tool changed CUPTI's clock meanwhile: times of records are not the trace's")
    if check.missing:
        said += warning(f"{plural(check.missing, 'event')} of memory without CUPTI's record of it")
    if check.differ:
        said += warning(f"{plural(check.differ, 'record')} of CUPTI say otherwise than the calls that were seen")
    if check.alone:
        said += warning(f"{plural(check.alone, 'record')} of CUPTI are of memory that no recorded call asked for")
    if check.dropped:
        said += warning(f"{plural(check.dropped, 'record')} dropped by CUPTI: the callers of those are not known")
    if driver.failed_frees:
        said += warning(f"{plural(driver.failed_frees, 'free')} refused by CUDA: that memory is still there")
    if driver.replaced:
        said += warning(
            f"{plural(driver.replaced, 'allocation')} at an address that was still taken: some frees were not seen"
        )
    if driver.unknown_frees:
        said += prose(f"{plural(driver.unknown_frees, 'free')} of memory from before the recording.", "dim")
    if driver.recorded:
        said += prose(_seen(driver), "dim")
    return said


def _seen(driver: DriverLevel) -> str:
    number = f"{plural(driver.allocations, 'allocation')} and {plural(driver.frees, 'free')} at driver level"
    check = driver.record_check
    if not check.records:
        return f"{number}; no records of CUPTI to check them with."
    told = check.agrees and check.matched == check.records
    if told and check.records == 1:
        return f"{number}; CUPTI's one record agrees with them."
    if told:
        return f"{number}; all {plural(check.records, 'record')} of CUPTI agree with them."
    agree = f"{number}; {count(check.matched)} of {plural(check.records, 'record')} of CUPTI agree with them"
    return f"{agree}, the events of the others are in sums." if check.agrees else f"{agree}."


# -- page-locked host memory ---------------------------------------------------------------------------------------


def _host(host: DriverDevice | None, top: int) -> list[Block]:
    if host is None or not (host.peak or host.bytes):
        return []
    head = f"Page-locked host memory: {size(host.bytes)} at the end, {size(host.peak)} at most"
    blocks: list[Block] = [Text(), Text(head, "title")]
    if not host.live:
        return blocks

    def row(one: DriverAllocations) -> _Cells:
        return (
            size(one.bytes),
            count(one.count),
            "PyTorch" if one.torch else what(one.library, one.kind if one.kind == "registered" else ""),
            _phase(one.backward),
            where(one.frame, one.stack_lost),
            function(one.frame),
            code(one.frame),
        )

    rows = [row(one) for one in host.live[:top]]
    left = host.live[top:]
    if left:
        total = sum(one.bytes for one in left)
        number = sum(one.count for one in left)
        rows.append((size(total), count(number), f"({plural(len(left), 'more line')})", "", "", "", ""))
    columns = (Column("at the end", right=True, style="strong"), *_COLUMNS[2:])
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    blocks.append(Table(tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows)))
    return blocks


# -- the views -----------------------------------------------------------------------------------------------------


def full(report: Report, ledgers: Sequence[Ledger], top: int) -> list[Block]:
    """A table for each device; what is unknown below it; then how all of it was seen."""
    blocks: list[Block] = []
    for one in ledgers:
        blocks += [
            Text(),
            Text(_headline(one), "title"),
            *_answer(one, report.driver.mode == "callbacks"),
            _table(one, top),
            *_other_moments(report, one),
            *_unknown(one),
        ]
    blocks += _host(report.driver.host, top)
    return [*blocks, Text(), *exactness(report)]


def short(report: Report) -> list[Block]:
    """For the summary: a sentence for each device, or why there is none. Nothing where no CUDA was used."""
    blocks: list[Block] = []
    for one in report.ledgers:
        if one.what == "peak":
            at = f"{duration(one.time_ns)} after the start"
            text = f"{one.device}: {size(one.used)} used at its fullest, {at}: {parts(one, _IN_SUMMARY)}"
            blocks.append(Text(f"  {text}", hang=4, breaks="[,:] ", prose=True))
            blocks += _other_moments(report, one)
    on_cuda = any(device.name.startswith("cuda") for device in report.devices)
    driver = report.driver
    if driver.mode == "slots" and (blocks or on_cuda):
        blocks.append(Text(f"  driver level without CUPTI: {driver.reason}", "dim"))
    elif not driver.recorded and on_cuda:
        blocks.append(Text(f"  no driver level: {driver.reason}", "dim"))
    elif on_cuda and not blocks:
        blocks.append(Text("  no ledger: the devices were never asked, for the recording ended too soon", "dim"))
    return blocks
