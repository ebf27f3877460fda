"""The host's memory of a recorded process and of every process below it: who has it, and what grows.

Made of tree samples (csrc/base/process_tree.h). Resident bytes are known at most twice a second; what is private,
shared or in proportion less often, where the kernel had to look at every page.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuptimem.report.brief import Brief
from cuptimem.words import plural, size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

# In the order of cm_process_role.
ROLES = (
    "program",
    "recorded",
    "DataLoader worker",
    "forked",
    "spawned",
    "resource tracker",
    "fork server",
    "shared memory manager",
)
SHARED_FOLDER = "/dev/shm/"
OWN_FILES = "/.cuptimem-ring-"  # what the recording itself has there
DATASETS = "host.datasets"  # meta: rows of an Attribute
_FOREVER = 1 << 63
COPIES = ("DataLoader worker", "forked")  # they begin with the pages of their parent
KINDS = ("anonymous", "shared_memory", "files")


def said(number: int) -> str:
    """1 process, 2 processes"""
    return "1 process" if number == 1 else f"{number:,} processes"


@dataclass(frozen=True, slots=True)
class ProcessPoint:
    """Bytes of a process at one moment. The last five are None where pages were not looked at."""

    time_ns: int
    anonymous: int  # resident: heap, stacks, what was forked; zero pages that were never written have none
    files: int  # resident pages of mapped files
    shared_memory: int  # resident pages of /dev/shm and the like
    swapped: int
    private: int | None = None  # resident in this process alone
    shared: int | None = None  # resident, and of another process, too
    proportional: int | None = (
        None  # private, and its share of what is shared: sums over processes count each page once
    )
    proportional_anonymous: int | None = None
    proportional_files: int | None = None

    @property
    def resident(self) -> int:
        return self.anonymous + self.files + self.shared_memory

    def of(self, kind: str) -> int:
        """One of KINDS."""
        value: int = getattr(self, kind)
        return value

    def copied_since(self, first: "ProcessPoint") -> int:
        """Private bytes that are no new pages: what is resident rose by less."""
        new = sum(max(0, self.of(kind) - first.of(kind)) for kind in KINDS)
        return max(0, (self.private or 0) - new)

    @property
    def proportional_shared_memory(self) -> int | None:
        if self.proportional is None or self.proportional_anonymous is None or self.proportional_files is None:
            return None
        return self.proportional - self.proportional_anonymous - self.proportional_files


@dataclass(frozen=True, slots=True, repr=False)
class Process(Brief):
    """One process, over the time that it was seen. (pid, started) is the same in every trace of a machine's boot."""

    pid: int
    parent: int
    started: int  # clock ticks since boot
    role: str  # of ROLES
    name: str
    points: tuple[ProcessPoint, ...]  # at least one

    def _summary(self) -> str:
        return f"{self.role} {self.pid}: {size(self.end.resident)} at the end, {size(self.highest)} at most"

    @property
    def end(self) -> ProcessPoint:
        return self.points[-1]

    @property
    def highest(self) -> int:
        """Resident bytes, at most."""
        return max(point.resident for point in self.points)

    @property
    def looked_at(self) -> tuple[ProcessPoint, ...]:
        """The points with private and shared bytes."""
        return tuple(point for point in self.points if point.private is not None)

    @property
    def copied(self) -> int:
        """Private bytes, at most, that are no new pages: its parent's until this process or its parent wrote to them.
        0 for a process that was not forked, or of which pages were not looked at."""
        first = self.points[0]
        return max((point.copied_since(first) for point in self.looked_at if self.role in COPIES), default=0)


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file of which processes have pages. In the recorded process resident ones, in others mapped ones; a file in
    /dev/shm that none has mapped has what it takes up."""

    path: str  # "": all that are not among the largest
    bytes: int  # of the process that has most of it
    pids: tuple[int, ...]

    @property
    def is_shared_memory(self) -> bool:
        return self.path.startswith(SHARED_FOLDER)


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a Dataset refers to that has many Python objects: each read of one writes to its page."""

    dataset: str  # class
    path: str  # .dataset.samples
    kind: str  # list, dict, ...
    items: int
    bytes: int  # of a sample of them, all together


@dataclass(frozen=True, slots=True)
class AccountLine:
    """A part of what a tree of processes has."""

    part: str
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Host(Brief):
    """Every process that was seen, the recorded one first; then the highest first."""

    processes: tuple[Process, ...]
    files: tuple[MappedFile, ...]  # at the last look, the largest first
    samples: int
    cpu_ns: int  # that sampling took
    shm_bytes: int  # of /dev/shm, for all processes of the machine (or container); 0: there is none
    shm_used: int  # at most
    left_out: int  # processes that had no room in a sample, at most
    attributes: tuple[Attribute, ...] = ()

    def _summary(self) -> str:
        return f"{said(len(self.processes))}, {plural(self.samples, 'sample')}"

    @property
    def recorded(self) -> Process:
        return self.processes[0]

    @property
    def moments(self) -> tuple[tuple[int, tuple[tuple[Process, ProcessPoint], ...]], ...]:
        """Each sample in which pages were looked at: its time, and who was there."""
        found: dict[int, list[tuple[Process, ProcessPoint]]] = {}
        for process in self.processes:
            for point in process.looked_at:
                found.setdefault(point.time_ns, []).append((process, point))
        # Without the recorded process a sample is of others that ended later.
        return tuple(
            (time, tuple(rows)) for time, rows in sorted(found.items()) if any(one is self.recorded for one, _ in rows)
        )

    @property
    def peak(self) -> tuple[int, tuple[tuple[Process, ProcessPoint], ...]] | None:
        """The moment at which the tree had most, each page counted once; None: pages were never looked at."""
        return max(self.moments, key=lambda moment: sum(p.proportional or 0 for _, p in moment[1]), default=None)

    def account(self, tensors: int) -> tuple[AccountLine, ...]:
        """What the tree has at its highest; the lines sum to it. tensors: live bytes of the recorded process then, of
        which those count that can be resident."""
        if self.peak is None:
            return ()
        _, rows = self.peak
        own = next((point for process, point in rows if process is self.recorded), None)
        if own is None:  # not of our own recordings
            return ()
        heap = own.proportional_anonymous or 0
        lines = [
            AccountLine("tensors", min(tensors, heap)),
            AccountLine("other memory", heap - min(tensors, heap)),
            AccountLine("mapped files", own.proportional_files or 0),
            AccountLine("shared memory", own.proportional_shared_memory or 0),
        ]
        for role in ROLES:
            others = [
                point.proportional or 0
                for process, point in rows
                if process is not self.recorded and process.role == role
            ]
            if others:
                lines.append(AccountLine(_several(role, len(others)), sum(others)))
        return tuple(lines)

    def curve(self, role: str) -> tuple[tuple[int, int], ...]:
        """Resident bytes of all processes of a role, at each sample: what is shared counts in each."""
        sums: dict[int, int] = {}
        for process in self.processes:
            for point in process.points:
                sums[point.time_ns] = sums.get(point.time_ns, 0) + point.resident * (process.role == role)
        return tuple(sorted(sums.items()))


def _several(role: str, number: int) -> str:
    return role if number == 1 else f"{number} × {role}"


# -- out of tree samples ---------------------------------------------------------------------------------------------


def of_samples(samples: Sequence[Any], start_ns: int, attributes: Iterable[Attribute] = ()) -> Host | None:
    """samples: as _core.tree_samples gives them. start_ns: the wall clock at time 0. None: there are none."""
    rows: dict[tuple[int, int], list[Any]] = {}
    points: dict[tuple[int, int], list[ProcessPoint]] = {}
    files: Sequence[tuple[int, int, str]] = ()
    samples = [one for one in samples if one[5]]  # none of ours is empty
    for realtime, _, _, _, _, processes, looked, *_ in samples:
        files = files if looked is None else looked
        for row in {(row[0], row[2]): row for row in processes}.values():
            if row[5] is not None:
                rows[row[0], row[2]] = row
                points.setdefault((row[0], row[2]), []).append(_point(max(0, realtime - start_ns), row[5], row[6]))
    if not points:
        return None
    root = samples[0][5][0][0]
    made = [
        Process(row[0], row[1], row[2], ROLES[row[3]] if row[3] < len(ROLES) else ROLES[0], row[4], tuple(points[key]))
        for key, row in rows.items()
    ]
    made.sort(key=lambda one: (one.pid != root, -one.highest, one.pid))
    return Host(
        tuple(made),
        _files(files),
        len(samples),
        sum(one[1] for one in samples),
        max(one[2] for one in samples),
        max(one[3] for one in samples),
        max(one[4] for one in samples),
        tuple(attributes),
    )


def _point(time_ns: int, status: Sequence[int], rollup: Sequence[int] | None) -> ProcessPoint:
    anonymous, files, shared_memory, swapped = status
    if rollup is None:
        return ProcessPoint(time_ns, anonymous, files, shared_memory, swapped)
    clean, dirty, shared_clean, shared_dirty, *proportional, _ = rollup
    shared = shared_clean + shared_dirty
    return ProcessPoint(time_ns, anonymous, files, shared_memory, swapped, clean + dirty, shared, *proportional)


def _files(rows: Sequence[tuple[int, int, str]]) -> tuple[MappedFile, ...]:
    by_path: dict[str, list[tuple[int, int]]] = {}
    for pid, bytes_, path, *_ in rows:
        by_path.setdefault(path, []).append((pid, bytes_))
    made = [
        MappedFile(path, max(bytes_ for _, bytes_ in of), tuple(pid for pid, _ in of if pid))
        for path, of in by_path.items()
        if OWN_FILES not in path
    ]
    return tuple(sorted(made, key=lambda one: (-one.bytes, one.path)))


def of_now(tree: Any) -> Host | None:
    """Of a process that runs now (_core.tree_now): one moment."""
    return of_samples([tree], tree[0])


def of_report(samples: Sequence[Any], report: "Report") -> Host | None:
    """The samples of a report's window."""
    start = report.start_realtime_ns
    until = start + report.duration_ns if report.window else _FOREVER  # the last one is taken after the last event
    chosen = [one for one in samples if start <= one[0] <= until]
    return of_samples(chosen, start, _attributes(report.environment.get(DATASETS, ""))) if chosen else None


def _attributes(text: str) -> tuple[Attribute, ...]:
    """Of the trace's note (cuptimem/record/datasets.py): whatever it holds."""
    try:
        rows = json.loads(text or "[]")
        return tuple(
            Attribute(str(dataset), str(path), str(kind), int(items), int(size_))
            for dataset, path, kind, items, size_ in rows
        )
    except (ValueError, TypeError, RecursionError, OverflowError):
        return ()
