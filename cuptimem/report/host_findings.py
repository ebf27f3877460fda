"""What is wrong with the host's memory of a tree of processes: who copies, who grows."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cuptimem.report.brief import Brief
from cuptimem.report.host import COPIES, KINDS, Attribute, Host, Process
from cuptimem.words import size

_WORDS = ("memory", "shared memory", "mapped files")  # of KINDS
_LEAST = 8 << 20  # what a process of Python wanders by
_LEAST_FILES = 64 << 20  # code of libraries is mapped as it is needed
# Reference counts and collections of modules alone copy 7 MiB of PyTorch's, and more of larger programs.
_LEAST_COPIED, _LEAST_UNKNOWN = 16 << 20, 64 << 20
_QUARTERS = 4
_RISE = 10  # as in cuptimem/report/process.py
_SETTLED = 20  # a copy that rose by less than one in so many parts, at last, has stopped
_NEAR = 0.8  # of /dev/shm


@dataclass(frozen=True, slots=True, repr=False)
class HostFinding(Brief):
    """What is wrong, and with which process. kind: "copied", "grows" or "shared memory full"."""

    kind: str
    bytes: int
    pid: int | None
    role: str
    what: str  # of "grows": memory, shared memory or mapped files
    processes: int = 1  # that show it
    stopped: bool = False  # it no longer rose at last
    bytes_per_step: float | None = None
    attribute: Attribute | None = None

    def _summary(self) -> str:
        return f"{self.kind}: {size(self.bytes)}, {self.role} {self.pid}"


def findings(host: Host, steps: "Sequence[tuple[int, int]]" = ()) -> tuple[HostFinding, ...]:
    """steps: the time and number of each step's end."""
    found = [*_copies(host.processes, host.attributes)]
    for process in host.processes:
        for what, kind in zip(_WORDS, KINDS, strict=True):
            rise = _growth(process, kind)
            if rise >= (_LEAST_FILES if kind == "files" else _LEAST):
                pace = _per_step(process, rise, steps)
                found.append(HostFinding("grows", rise, process.pid, process.role, what, bytes_per_step=pace))
    if host.shm_bytes and host.shm_used >= _NEAR * host.shm_bytes:
        found.append(HostFinding("shared memory full", host.shm_used, None, "", ""))
    return tuple(found)


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


def _growth(process: Process, kind: str) -> int:
    """By how much the lows of its quarters rose from each to the next, without the first tenth of its life."""
    points = process.points[max(1, len(process.points) // 10) :]
    if len(points) < 2 * _QUARTERS:
        return 0
    lows = [
        min(point.of(kind) for point in points[len(points) * i // _QUARTERS : len(points) * (i + 1) // _QUARTERS])
        for i in range(_QUARTERS)
    ]
    rise = lows[-1] - lows[0]
    steady = all(after - before > rise // _RISE for before, after in itertools.pairwise(lows))
    return rise if rise > 0 and steady else 0


def _per_step(process: Process, rise: int, steps: "Sequence[tuple[int, int]]") -> float | None:
    inside = [index for time, index in steps if process.points[0].time_ns <= time <= process.end.time_ns]
    # The lows of the first and the last quarter lie about three quarters of its life apart.
    return rise / (0.75 * len(inside)) if len(inside) >= 2 * _QUARTERS else None
