"""What one run was like: its device's report, its trace and its notes put together."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudasim import report as device_report
from cudasim.report import Note
from cuptimem import cell_names
from cuptimem.errors import Error
from cuptimem.report.load import analyze
from cuptimem.report.model import HostRead, Report
from cuptimem.report.process import HOST
from cuptimem.report.stacks import Frame
from cuptimem.simulation.launch import Run
from cuptimem.simulation.result import Assumption, UnknownRead


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device, all processes that used it together. Bytes."""

    index: int  # of all the simulated devices, however CUDA_VISIBLE_DEVICES numbers them for a process
    total: int
    context: int
    used: int  # the sum of its processes' peaks: exact for one, an upper bound for several
    library: int  # of the peak, in library handles
    allocated: int
    reserved: int | None
    refused: int
    processes: int

    @property
    def name(self) -> str:
        return f"cuda:{self.index}"


def says_full(message: str) -> bool:
    """Of PyTorch's allocator, or of a library whose handle found no room."""
    text = message.lower()
    return "cuda error: out of memory" in text or "cuda out of memory" in text or "_alloc_failed" in text


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that ended the program."""

    type: str  # with its module
    bases: tuple[str, ...]
    message: str
    at: Frame | None  # the user's innermost line
    inner: Frame | None = None  # the innermost of all

    @property
    def out_of_memory(self) -> bool:
        """Whether a device was full."""
        text = self.message.lower()
        return (
            "OutOfMemoryError" in self.bases
            and ("cuda" in text or "gpu" in text)
            or ("RuntimeError" in self.bases and says_full(text))
        )

    @property
    def line(self) -> str:
        """Type and message in one line."""
        message = " ".join(self.message.split())
        name = self.type.removeprefix("builtins.")
        return f"{name}: {message[:200]}" if message else name


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a verdict rests on."""

    run: Run
    report: Report | None  # None: there is no trace
    report_problem: str
    devices: tuple[DeviceFacts, ...]
    processes: int  # that used a device
    ooms: int  # requests that PyTorch's allocator had to refuse, but for those that its convolutions caught
    retries: int  # that it could serve only after it had emptied its cache
    chain: tuple[Raised, ...] | None  # the exception that ended it, outermost first; None: none is known
    elsewhere: tuple[Raised, ...]  # exceptions that ended a thread, or another of its processes
    unaccounted: int  # requests that a device refused, with an unknown outcome
    lost_processes: int  # that used a device and ended without a note
    modelled: tuple[Note, ...]
    undescribed: tuple[Note, ...]
    unsupported: tuple[Note, ...]
    limits: tuple[Note, ...]
    limited: int  # requests refused by this machine
    host_reads: tuple[HostRead, ...]
    reads: int  # as the device counted them
    unknown_reads: tuple[UnknownRead, ...]  # as the processes noted them: those made through PyTorch
    unknown_reads_dropped: int  # lines for which the note had no room
    assumptions: tuple[Assumption, ...]
    settings: str | None  # of PyTorch's allocator in the end; None: unknown
    backend: str | None
    problems: tuple[str, ...]

    @property
    def used_cuda(self) -> bool:
        return bool(self.devices)

    @property
    def only_contexts(self) -> bool:
        """Whether it used devices as an optimizer does that asks CUDA for its state, and put nothing on them."""
        took = any(one.allocated or one.reserved or one.refused or one.used > one.context for one in self.devices)
        return self.used_cuda and not took

    @property
    def ended_well(self) -> bool:
        return self.run.exit_code == 0 and not self.run.timed_out

    @property
    def interrupted(self) -> bool:
        return self.run.interrupted_by is not None or self.run.signal == 2 or self.run.exit_code == 130

    @property
    def crashed_at_exit(self) -> bool:
        """Whether the program was through, and Python crashed while it shut down (threads of autograd may do that)."""
        ended = any(note["leader"] and note["ended"] for note in self.run.notes)
        return self.run.signal in (signal.SIGABRT, signal.SIGSEGV) and ended and self.chain is None

    @property
    def crowded(self) -> DeviceFacts | None:
        """A device that several processes used as if each had it alone, where the peaks together are too much."""
        return next((device for device in self.devices if device.processes > 1 and device.used > device.total), None)

    @property
    def open_reads(self) -> tuple[UnknownRead, ...]:
        """Reads on which a size or a branch may hang."""
        return (*(read for read in self.unknown_reads if read.is_open), *self.reads_past_pytorch)

    @property
    def reads_past_pytorch(self) -> tuple[UnknownRead, ...]:
        """Those of other code, as far as they may be integers or flags.

        What is read through PyTorch is noted with its type. Here the size alone decides: 1 or 8 bytes each time, or a
        few numbers of 8 bytes.
        """
        noted = {None if one.frame is None else (one.frame.file, one.frame.line) for one in self.unknown_reads}
        found = []
        for read in self.host_reads:
            frame = read.frame
            at = None if frame is None else (frame.file, frame.line)
            if not read.written and at not in noted and _is_decisive(read.bytes, read.count):
                each = read.bytes // read.count
                kind, dtype = ("flag", "1 byte") if each == 1 else ("integer", "8 bytes")
                found.append(UnknownRead(kind, dtype, read.count, each // (1 if each == 1 else 8), frame, None))
        return tuple(found)

    @property
    def unfollowed(self) -> tuple[UnknownRead, ...]:
        """Floats that may have decided a branch unseen."""
        return tuple(read for read in self.unknown_reads if read.kind == "unfollowed float")

    @property
    def optimizer_steps(self) -> int:
        """The number of optimizer steps in the recording."""
        return 0 if self.report is None else len({step.index for step in self.report.steps.ended})

    @property
    def refused(self) -> int:
        return sum(device.refused for device in self.devices)

    @property
    def ran_out(self) -> bool:
        """Whether it ended with the exception of a full device."""
        return self.chain is not None and any(raised.out_of_memory for raised in self.chain)

    @property
    def fullest(self) -> DeviceFacts | None:
        return max(self.devices, key=lambda device: device.used, default=None)


def collect(run: Run, path: str | None = None, with_lives: bool = False) -> Facts:
    """Reads what a run left behind. with_lives: with single blocks, for advice."""
    report, problem = None, ""
    try:
        report = analyze(path or run.trace, temporary=path is None, with_lives=with_lives)
    except Error as error:
        problem = str(error)
    processes = [one for one in run.reports if one.used]
    return Facts(
        run=run,
        report=report,
        report_problem=problem,
        devices=_devices(run, report),
        processes=len(processes),
        ooms=_ooms(run, report),
        retries=_stat(run, "retries"),
        chain=_chain(run),
        elsewhere=_elsewhere(run),
        unaccounted=_unaccounted(run),
        lost_processes=_lost_processes(run),
        modelled=device_report.merged_notes(processes, device_report.MODELLED),
        undescribed=device_report.merged_notes(run.reports, device_report.UNDESCRIBED),
        unsupported=device_report.merged_notes(run.reports, device_report.REFUSED),
        limits=device_report.merged_notes(run.reports, device_report.LIMIT),
        limited=sum(device.limited for one in processes for device in one.devices),
        host_reads=() if report is None else report.host_reads,
        reads=sum(device.reads for one in processes for device in one.devices),
        unknown_reads=unknown_reads(run.notes),
        unknown_reads_dropped=sum(note["reads_dropped"] for note in run.notes),
        assumptions=_assumptions(run),
        settings=_cuda(run).get("settings"),
        backend=_cuda(run).get("backend"),
        problems=_problems(run),
    )


_FEW = 512  # bytes: as many numbers as a program reads one by one


def _is_decisive(size: int, count: int) -> bool:
    return size == count or (size % (8 * count) == 0 and size <= _FEW * count)


def _note_of(run: Run, pid: int) -> Mapping[str, Any] | None:
    return next((note for note in run.notes if note["pid"] == pid), None)


def _unaccounted(run: Run) -> int:
    """Refused requests that PyTorch's own statistics lack: of a process that ended early, or of another allocator."""
    found = 0
    for one in run.reports:
        note = _note_of(run, one.pid)
        told = note is not None and note["ended"] and note["cuda"] and note["cuda"].get("devices")
        found += 0 if told else sum(device.refused for device in one.used)
    return found


def _lost_processes(run: Run) -> int:
    notes = [_note_of(run, one.pid) for one in run.reports if one.used]
    return sum(note is not None and not note["leader"] and not note["ended"] for note in notes)


def _cuda(run: Run) -> Mapping[str, Any]:
    """Of the program's own process."""
    for note in run.notes:
        if note["leader"] and note["cuda"]:
            return dict(note["cuda"])
    return {}


def _stats(run: Run) -> list[Mapping[str, Any]]:
    return [device for note in run.notes if note["cuda"] for device in note["cuda"].get("devices", ())]


def _stat(run: Run, name: str) -> int:
    return sum(int(device[name]) for device in _stats(run))


def _ooms(run: Run, report: Report | None) -> int:
    recorded = 0 if report is None else len([oom for oom in report.ooms if oom.device not in HOST])
    passed_over = sum(int(note["cuda"].get("passed_over", 0)) for note in run.notes if note["cuda"])
    return max(0, max(recorded, _stat(run, "ooms")) - passed_over)


def _devices(run: Run, report: Report | None) -> tuple[DeviceFacts, ...]:
    found: dict[int, DeviceFacts] = {}
    for one in run.reports:
        for counts in one.used:
            other = found.get(counts.ordinal)
            found[counts.ordinal] = DeviceFacts(
                index=counts.ordinal,
                total=counts.total,
                context=counts.context + (other.context if other else 0),
                used=counts.peak + (other.used if other else 0),
                library=counts.peak_library + (other.library if other else 0),
                allocated=0,
                reserved=None,
                refused=counts.refused + (other.refused if other else 0),
                processes=1 + (other.processes if other else 0),
            )
    return tuple(_with_tensors(found[index], run, report) for index in sorted(found))


def _with_tensors(device: DeviceFacts, run: Run, report: Report | None) -> DeviceFacts:
    """The trace has the peaks whole; PyTorch's own counters, which a program may reset, where it has none."""
    told = [
        stats
        for note in run.notes
        if note["cuda"]
        for stats in note["cuda"].get("devices", ())
        if _ordinal(run, note["pid"], stats["index"]) == device.index
    ]
    allocated = sum(int(stats["allocated_peak"]) for stats in told)
    reserved = sum(int(stats["reserved_peak"]) for stats in told) or None
    leader = next((note["pid"] for note in run.notes if note["leader"]), 0)
    for one in report.devices if report is not None else ():
        kind, _, index = one.name.partition(":")
        if kind == "cuda" and _ordinal(run, leader, int(index)) == device.index:
            allocated = max(allocated, one.peak.bytes)
            reserved = max(reserved or 0, one.reserved_peak or 0) or None
    return DeviceFacts(
        device.index,
        device.total,
        device.context,
        device.used,
        device.library,
        allocated,
        reserved,
        device.refused,
        device.processes,
    )


def _ordinal(run: Run, pid: int, index: int) -> int:
    """Which of all the simulated devices a process means by this number."""
    for one in run.reports:
        if one.pid == pid and 0 <= index < len(one.devices):
            return one.devices[index].ordinal
    return index


def _raised(one: Mapping[str, Any]) -> Raised:
    at, inner = (
        None if row is None else Frame(cell_names.namer()(row[0]), row[2], row[1]) for row in (one["at"], one["inner"])
    )
    return Raised(one["type"], tuple(one["bases"]), one["message"], at, inner)


def _chain(run: Run) -> tuple[Raised, ...] | None:
    for note in run.notes:
        if note["leader"] and note["exception"]:
            return tuple(map(_raised, note["exception"]))
    return None


def _elsewhere(run: Run) -> tuple[Raised, ...]:
    others = [note["exception"][0] for note in run.notes if not note["leader"] and note["exception"]]
    return tuple(_raised(one) for one in [*(one for note in run.notes for one in note["threads"]), *others])


def _assumptions(run: Run) -> tuple[Assumption, ...]:
    found: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for note in run.notes:
        for row in note["assumptions"]:
            key = tuple(
                row[name] for name in ("operator", "fraction", "given", "file", "line", "function", "text", "library")
            )
            count, elements, size = found.get(key, (0, 0, 0))
            found[key] = (count + row["count"], max(elements, row["elements"]), max(size, row["bytes"]))
    rows = [
        Assumption(operator, fraction, given, count, file, line, function, text, elements, size, _noted_frame(library))
        for (operator, fraction, given, file, line, function, text, library), (count, elements, size) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.operator, row.file, row.line)))


def _noted_frame(row: Any) -> Frame | None:
    file, line, function, text = row
    return Frame(cell_names.namer()(file), function, line, text=text) if file else None


def unknown_reads(notes: Sequence[Mapping[str, Any]]) -> tuple[UnknownRead, ...]:
    """What processes noted as read and unknown."""
    found = [
        UnknownRead(
            row["kind"],
            row["dtype"],
            row["count"],
            row["elements"],
            _noted_frame(row["user"]),
            _noted_frame(row["library"]),
        )
        for note in notes
        for row in note["reads"]
    ]
    return tuple(sorted(found, key=lambda read: -read.count))


def _problems(run: Run) -> tuple[str, ...]:
    said = [str(problem) for note in run.notes for problem in note["problems"]]
    if not any(note["leader"] for note in run.notes):
        said.append(
            "the program's process took no note: sizes that depend on data were not assumed (an own sitecustomize, -S "
            "or -I in its first line, or another Python)"
        )
    return tuple(dict.fromkeys(said))
