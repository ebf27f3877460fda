"""What is to be said of the host's memory of a tree of processes: who copies, who grows, what fills, what is twice."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuptimem.report.brief import Brief
from cuptimem.report.host import COPIES, KINDS, LEAST_FILE, Attribute, Host, Process, ProcessPoint
from cuptimem.report.process import HOST
from cuptimem.words import size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

_WORDS = ("memory", "shared memory", "mapped files")  # of KINDS
_LEAST = 8 << 20  # what a process of Python wanders by
_LEAST_FILES = 64 << 20  # code of libraries is mapped as it is needed
# Reference counts and collections of modules alone copy 7 MiB of PyTorch's, and more of larger programs.
_LEAST_COPIED, _LEAST_UNKNOWN = 16 << 20, 64 << 20
_PINS = "/torch/utils/data/_utils/pin_memory.py"
_LEAST_KEPT = 64 << 20
_LEAST_QUEUED = 16 << 20
# A queue is full where it has so much of its highest; it takes a batch to fill it again, and it is empty at the end.
_FULL, _MOSTLY, _SAMPLES_FULL = 0.8, 0.6, 5
_QUARTERS = 4
_RISE = 10  # as in cuptimem/report/process.py
_SETTLED = 20  # a copy that rose by less than one in so many parts, at last, has stopped
_NEAR = 0.8  # of /dev/shm


@dataclass(frozen=True, slots=True, repr=False)
class HostFinding(Brief):
    """What is wrong, and with which process. kind: "copied", "grows", "shared memory full", "loaded twice",
    "stays mapped", "kept" (by malloc), or "fills", which is no fault."""

    kind: str
    bytes: int
    pid: int | None
    role: str
    what: str  # of "grows": memory, shared memory or mapped files
    processes: int = 1  # that show it
    stopped: bool = False  # it no longer rose at last
    bytes_per_step: float | None = None
    attribute: Attribute | None = None
    path: str = ""  # of a file
    batches: int | None = None  # of "fills": that there are at most

    def _summary(self) -> str:
        return f"{self.kind}: {size(self.bytes)}, {self.role} {self.pid}"


def findings(host: Host, steps: "Sequence[tuple[int, int]]" = ()) -> tuple[HostFinding, ...]:
    """steps: the time and number of each step's end. What a process does before the first is its start: libraries are
    loaded."""
    found = [*_copies(host.processes, host.attributes), *_loaded_twice(host), *_stays_mapped(host), *_filled(host)]
    begin = steps[0][0] if steps else 0
    for process in host.processes:
        points = [point for point in process.points if point.time_ns >= begin]
        for what, kind in zip(_WORDS, KINDS, strict=True):
            rise = _growth(points, kind)
            if rise >= (_LEAST_FILES if kind == "files" else _LEAST):
                pace = _per_step(points, rise, steps)
                found.append(HostFinding("grows", rise, process.pid, process.role, what, bytes_per_step=pace))
    if host.shm_bytes and host.shm_used >= _NEAR * host.shm_bytes:
        found.append(HostFinding("shared memory full", host.shm_used, None, "", ""))
    return tuple(found)


def pinned_queue(report: "Report") -> HostFinding | None:
    """The same of the pinned batches of a DataLoader with pin_memory, which its thread has made and the loop has not
    dropped, where most of the pinned memory is theirs."""
    device = next((one for one in report.devices if one.name == HOST[1]), None)
    if device is None or report.host is None:
        return None
    rows = [row for row in device.peak.contributors if any(frame.file.endswith(_PINS) for frame in row.stack)]
    most, batches = sum(row.bytes for row in rows), report.host.batches
    points = device.timeline
    since = next((i for i, point in enumerate(points) if point.high >= _FULL * most), len(points))
    ends = [point.time_ns for point in points[since + 1 :]]  # each point is of the time until the next
    spans = [(end - point.time_ns, point.high) for point, end in zip(points[since:], ends, strict=False)]
    full = sum(span for span, bytes_ in spans if bytes_ >= _FULL * most)
    if most < max(_LEAST_QUEUED, _FULL * device.peak.bytes) or len(spans) < _SAMPLES_FULL:
        return None
    if sum(row.count for row in rows) < (batches or _SAMPLES_FULL):  # what the loop has alone
        return None
    if full < _MOSTLY * sum(span for span, _ in spans):
        return None
    own = report.host.recorded
    return HostFinding("fills", most, own.pid, own.role, "pinned memory", stopped=True, batches=batches)


def kept(report: "Report") -> HostFinding | None:
    """What malloc kept of freed memory, tried at the end, without all that the second half of the recording would
    have used again: by tensors, or at some sample by anything else. None: not much, or it is not known."""
    malloc = report.host.malloc if report.host is not None else None
    middle = report.duration_ns // 2
    beside = [point.bytes for point in report.rest if point.time_ns >= middle]
    if malloc is None or not beside:
        return None
    needed = max(beside) - beside[-1]
    for device in report.devices:
        if device.name == HOST[0]:
            points = [point for point in device.timeline if point.time_ns >= middle]
            needed += max((point.high for point in points), default=device.end) - device.end
    idle = malloc.returned - needed
    if report.host is None or idle < _LEAST_KEPT:
        return None
    own = report.host.recorded
    return HostFinding("kept", idle, own.pid, own.role, _WORDS[0])


def _copies(processes: Sequence[Process], attributes: Sequence[Attribute]) -> Iterable[HostFinding]:
    """One finding for all workers of a kind: they read the same data."""
    for role in COPIES:
        group = [one for one in processes if one.role == role and one.copied >= _LEAST_COPIED]
        if not group:
            continue
        most = max(group, key=lambda one: one.copied)
        fitting = [one for one in attributes if role == COPIES[0] and 2 * one.bytes >= most.copied]
        if not fitting and most.copied < _LEAST_UNKNOWN:
            continue
        last = [point.copied_since(most.points[0]) for point in most.looked_at][-2:]
        yield HostFinding(
            "copied",
            sum(one.copied for one in group),
            most.pid,
            role,
            "",
            len(group),
            stopped=len(last) == 2 and abs(last[1] - last[0]) * _SETTLED <= most.copied,
            attribute=max(fitting, key=lambda one: one.bytes, default=None),
        )


def _loaded_twice(host: Host) -> Iterable[HostFinding]:
    """bytes: what all of the processes have but one."""
    by_path: dict[str, dict[int, int]] = {}
    for one in host.copies:
        of = by_path.setdefault(one.path, {})
        of[one.pid] = max(one.bytes, of.get(one.pid, 0))
    roles = {one.pid: one.role for one in host.processes}
    for path, of in by_path.items():
        if len(of) > 1:
            most = max(of, key=lambda pid: of[pid])
            bytes_ = sum(of.values()) - of[most]
            yield HostFinding("loaded twice", bytes_, most, roles.get(most, ""), "", len(of), path=path)


def _stays_mapped(host: Host) -> Iterable[HostFinding]:
    """Of a checkpoint a model has the values elsewhere, or no tensor lies in it."""
    for one in host.mapped:
        is_unused = 2 * one.copied >= one.tensors - one.used and 2 * one.used < one.bytes
        if one.format and one.bytes >= LEAST_FILE and is_unused:
            own = host.recorded
            yield HostFinding("stays mapped", one.bytes, own.pid, own.role, _WORDS[2], path=one.path)


def _filled(host: Host) -> Iterable[HostFinding]:
    """What the workers of DataLoaders have made and was not taken: it came to its highest and stayed near it."""
    sums: dict[int, int] = {}
    workers = [one for one in host.processes if one.role == COPIES[0]]
    for worker in workers:
        for point in worker.points:
            sums[point.time_ns] = sums.get(point.time_ns, 0) + point.queued
    series = [sums[time] for time in sorted(sums)]
    most = max(series, default=0)
    if most < _LEAST_QUEUED:
        return
    since = series[next(i for i, bytes_ in enumerate(series) if bytes_ >= _FULL * most) :]
    full = sum(bytes_ >= _FULL * most for bytes_ in since)
    if len(since) >= _SAMPLES_FULL and full >= _MOSTLY * len(since):
        alive = max(sum(one.points[0].time_ns <= time <= one.end.time_ns for one in workers) for time in sums)
        yield HostFinding("fills", most, None, COPIES[0], _WORDS[1], alive, stopped=True, batches=host.batches)


def _growth(points: Sequence[ProcessPoint], kind: str) -> int:
    """By how much the lows of its quarters rose from each to the next, without the first tenth of the points."""
    points = points[max(1, len(points) // 10) :]
    if len(points) < 2 * _QUARTERS:
        return 0
    lows = [
        min(point.of(kind) for point in points[len(points) * i // _QUARTERS : len(points) * (i + 1) // _QUARTERS])
        for i in range(_QUARTERS)
    ]
    rise = lows[-1] - lows[0]
    steady = all(after - before > rise // _RISE for before, after in itertools.pairwise(lows))
    return rise if rise > 0 and steady else 0


def _per_step(points: Sequence[ProcessPoint], rise: int, steps: "Sequence[tuple[int, int]]") -> float | None:
    inside = [index for time, index in steps if points[0].time_ns <= time <= points[-1].time_ns]
    # The lows of the first and the last quarter lie about three quarters of its life apart.
    return rise / (0.75 * len(inside)) if len(inside) >= 2 * _QUARTERS else None
