"""The host's memory of a tree of processes, in words."""

from collections.abc import Sequence

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.ledger_views import prose, warning
from cuptimem.output.text.peak_views import lines_table
from cuptimem.output.text.words import count, duration, plural, share, signed, size
from cuptimem.report import host_findings
from cuptimem.report.host import AccountLine, Host, Malloc, MappedFile, Process, said
from cuptimem.report.host_findings import HostFinding
from cuptimem.report.model import Report

_FILES = 8
_LINES = 5
_LEAST_FILE = 1 << 20
_COLUMNS = (
    Column("process", flexible=True, least=20),
    Column("pid", right=True),
    Column("at most", right=True, style="strong"),
    Column("at end", right=True),
    Column("private", right=True),
    Column("shared", right=True),
    Column("swapped", right=True, optional=1),
    Column("copied", right=True, optional=2),
)
_WHAT_TO_DO = (
    "Keep the data in a numpy array, a tensor or an Arrow table: reading them writes nothing. Strings: one bytes array "
    "and a table of offsets."
)


def _bytes(value: int | None) -> str:
    return "" if value is None else size(value)


def _row(one: Process) -> tuple[str, ...]:
    looked = one.looked_at
    last = looked[-1] if looked else one.end
    label = one.role if one.role != "program" else one.name
    return (
        label,
        str(one.pid),
        size(one.highest),
        size(one.end.resident),
        _bytes(last.private),
        _bytes(last.shared),
        size(one.end.swapped),
        _bytes(one.copied or None),
    )


def processes(host: Host, top: int) -> list[Block]:
    rows = [_row(one) for one in host.processes[:top]]
    kept = [i for i in range(len(_COLUMNS)) if i != 7 or any(row[i] for row in rows)]
    blocks: list[Block] = [Table(tuple(_COLUMNS[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))]
    if left := len(host.processes) - len(rows):
        blocks.append(Text(f"  {said(left)} more (--top {len(host.processes)})", "dim"))
    if host.unseen:
        blocks += warning(f"{said(host.unseen)} of the machine were not looked at: any of them may belong to these")
    if host.left_out:
        blocks += warning(f"{said(host.left_out)} had no room in a sample: only counted")
    return blocks


def account(lines: Sequence[AccountLine], when: str) -> list[Block]:
    """What the tree had; the rows sum to the title."""
    whole = sum(line.bytes for line in lines)
    columns = (Column("bytes", right=True), Column("share", right=True), Column("part", flexible=True))
    rows = tuple((size(line.bytes), share(line.bytes, whole), line.part) for line in lines if line.bytes)
    return [
        Text(f"What the processes have{when}: {size(whole)}, each page counted once", "title"),
        Table(columns, rows),
    ]


def files(host: Host) -> list[Block]:
    mapped = [one for one in host.files if not one.is_shared_memory and one.bytes >= _LEAST_FILE]
    shared = [one for one in host.files if one.is_shared_memory]
    return [*_file_rows("Mapped files of the recorded process, resident", mapped), *_shared(host, shared)]


def _file_rows(title: str, rows: Sequence[MappedFile]) -> list[Block]:
    if not rows:
        return []
    columns = (Column("bytes", right=True), Column("file", flexible=True, keep_end=True), Column("mapped by"))
    cells = [(size(one.bytes), one.path or "(smaller ones)", _pids(one.pids)) for one in rows[:_FILES]]
    return [Text(), Text(title, "title"), Table(columns, tuple(cells))]


def _pids(pids: Sequence[int]) -> str:
    shown = " ".join(str(pid) for pid in pids[:3])
    return f"{shown} +{len(pids) - 3}" if len(pids) > 3 else shown


def _shared(host: Host, rows: Sequence[MappedFile]) -> list[Block]:
    if not host.shm_bytes:
        return []
    line = f"/dev/shm: {size(host.shm_used)} of {size(host.shm_bytes)} in use at most, by all programs that share it"
    table = _file_rows("In /dev/shm", [one for one in rows if one.bytes >= _LEAST_FILE])
    return [*table, Text(), Text(line)]


def findings(found: Sequence[HostFinding], host: Host) -> list[Block]:
    blocks: list[Block] = []
    for one in found:
        blocks += _finding(one, host)
    return blocks


def _finding(one: HostFinding, host: Host) -> list[Block]:
    if one.kind == "copied":
        return _copied(one)
    if one.kind == "grows":
        pace = "" if one.bytes_per_step is None else f", about {signed(round(one.bytes_per_step))} a step"
        who = "the recorded process" if one.pid == host.recorded.pid else f"{one.role} {one.pid}"
        grow = "grow" if one.what.endswith("s") else "grows"
        return warning(f"{one.what} of {who} {grow} by {size(one.bytes)}{pace}")
    if one.kind == "loaded twice":
        return _loaded_twice(one)
    if one.kind == "kept" and host.malloc is not None:
        return _kept(one, host.malloc)
    if one.kind == "stays mapped":
        return _stays_mapped(one)
    if one.kind == "fills":
        return _filled(one)
    return [
        *warning(
            f"/dev/shm was nearly full: {size(one.bytes)} of {size(host.shm_bytes)}. When it is full a worker of "
            "a DataLoader dies with a bus error"
        ),
        *prose("Enlarge it (docker run --shm-size), or send less at once: prefetch_factor, num_workers, batch size."),
    ]


def _loaded_twice(one: HostFinding) -> list[Block]:
    return [
        *warning(
            f"{said(one.processes)} have each a copy of {one.path} in their own memory: {size(one.bytes)} too much"
        ),
        *prose(
            "Each grew by its size while it had it open, or has mapped it and written to it. Load it in one process "
            "and share the tensors (share_memory_, broadcast), or map it and leave it as it is: torch.load(mmap=True), "
            "safetensors."
        ),
    ]


def _stays_mapped(one: HostFinding) -> list[Block]:
    return [
        *warning(f"{one.path} stays mapped, {size(one.bytes)} of it resident: no module has its tensors in there"),
        *prose(
            "A model that it was loaded into has the values of its own. If nothing else reads it, such as a library "
            "beside PyTorch, drop the last reference to what was loaded (del, or a function that returns). The kernel "
            "may take these pages back, for they are the file's."
        ),
    ]


def _kept(one: HostFinding, malloc: Malloc) -> list[Block]:
    ways = "Call malloc_trim(0) behind what frees so much (ctypes.CDLL(None).malloc_trim(0))"
    if 2 * malloc.in_arenas >= malloc.free:
        arenas = plural(malloc.arenas, "arena")
        ways += f", or limit the {arenas} of threads, which have {size(malloc.in_arenas)} of it: MALLOC_ARENA_MAX=2"
    else:
        ways += ", or have large blocks returned at once: MALLOC_MMAP_THRESHOLD_=1000000"
    return [
        *warning(
            f"malloc kept {size(one.bytes)} that were freed, and that nothing used again in the second half: "
            f"malloc_trim gave {size(malloc.returned)} back at the end"
        ),
        *prose(f"{ways}."),
    ]


def _filled(one: HostFinding) -> list[Block]:
    who = "pinned batches" if one.pid is not None else plural(one.processes, "worker")
    where = "pinned memory" if one.pid is not None else "/dev/shm"
    bound = "" if not one.batches else f", num_workers × prefetch_factor = {count(one.batches)} batches"
    return [
        Text(f"The queue of {who} filled to {size(one.bytes)} of {where} and stays there{bound}"),
        *prose(
            "It grows no further: the loop takes batches more slowly than they are made. A smaller prefetch_factor "
            "gives memory back."
        ),
    ]


def _copied(one: HostFinding) -> list[Block]:
    who = f"{one.role} {one.pid}" if one.processes == 1 else f"{said(one.processes)} ({one.role})"
    until = "; it has stopped" if one.stopped else ""
    head = f"{who} copied {size(one.bytes)} that they shared since they were forked{until}"
    if one.attribute is None:
        return [
            *warning(head),
            *prose(
                "A page is copied when one side writes to it; to read a Python object writes to its reference count. "
                "Which objects these are is not known."
            ),
        ]
    found = one.attribute
    named = f"{found.path} of {found.dataset}, a {found.kind} of {count(found.items)} items ({size(found.bytes)})"
    return [
        *warning(f"{head}: most likely {named}"),
        *prose(
            f"To read a Python object writes to its reference count, so each worker copies what it reads. {_WHAT_TO_DO}"
        ),
    ]


def _tensors_then(report: Report) -> int:
    """Live bytes on the host at the tree's peak."""
    peak = report.host.peak if report.host is not None else None
    if peak is None:
        return 0
    found = 0
    for device in report.devices:
        if device.name in ("cpu", "pinned"):
            before = [point.high for point in device.timeline if point.time_ns <= peak[0]]
            found += before[-1] if before else device.start
    return found


def report_findings(report: Report) -> tuple[HostFinding, ...]:
    """What is not said elsewhere: how the recorded process grows is the leaks' and process_growth's to say."""
    if report.host is None:
        return ()
    steps = [(step.end_ns, step.index) for step in report.steps.ended if step.device == report.steps[0].device]
    beside = (host_findings.kept(report), host_findings.pinned_queue(report))
    return tuple(
        one
        for one in (*host_findings.findings(report.host, steps), *filter(None, beside))
        if not (one.kind == "grows" and one.what == "memory" and one.pid == report.host.recorded.pid)
    )


def lines_of_account(report: Report) -> tuple[AccountLine, ...]:
    return () if report.host is None else report.host.account(_tensors_then(report))


def full(report: Report, host: Host, top: int) -> list[Block]:
    """Of a recording."""
    blocks = [Text(), *processes(host, top)]
    if host.peak is not None:
        lines = lines_of_account(report)
        blocks += [Text(), *account(lines, f" at most, {duration(host.peak[0])} after the start")]
    blocks += files(host)
    for device in report.devices:
        if device.name == "pinned" and device.peak.bytes:
            blocks += [Text(), Text(f"Pinned memory at its peak: {size(device.peak.bytes)}", "title")]
            blocks += lines_table(device.peak, _LINES)
    found = report_findings(report)
    blocks += [Text(), *(findings(found, host) if found else [Text("No process was seen to grow or to copy.")])]
    if host.malloc is not None:
        gave = (
            f"At the end malloc kept {size(host.malloc.free)} free; malloc_trim gave {size(host.malloc.returned)} back"
        )
        blocks += prose(f"{gave}.", "dim")
    taken = f"{plural(host.samples, 'sample')} took {duration(host.cpu_ns)} of CPU time, in a thread of their own"
    return [*blocks, Text(f"  {taken}", "dim")]


def now(host: Host, top: int) -> list[Block]:
    """Of a process that runs and may not be recorded."""
    one = host.recorded
    blocks: list[Block] = [Text(f"{one.name} · pid {one.pid} · now", "title"), Text(), *processes(host, top)]
    if host.peak is not None:
        blocks += [Text(), *account(host.account(0), " now")]
    blocks += files(host)
    more = "A recording (cuptimem run) adds tensors and pinned memory by line, what grows, and what workers copy."
    return [*blocks, Text(), *prose(more, "dim")]


def short(report: Report) -> list[Block]:
    """For the summary: where there are several processes, or something is wrong."""
    host = report.host
    if host is None:
        return []
    found = report_findings(report)
    blocks: list[Block] = []
    if len(host.processes) > 1:
        line = f"  {said(len(host.processes))} in all"
        if host.peak is not None:
            whole = sum(line.bytes for line in lines_of_account(report))
            line += f": at most {size(whole)} of host memory, each page counted once (cuptimem host)"
        blocks.append(Text(line))
    return [*blocks, *findings([one for one in found if one.kind != "fills"], host)]
