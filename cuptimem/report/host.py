"""The host's memory of a recorded process and of every process below it: who has it, and what grows.

Made of tree samples (csrc/base/process_tree.h). Resident bytes are known at most twice a second; what is private,
shared or in proportion less often, where the kernel had to look at every page.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from cuptimem.report.brief import Brief
from cuptimem.words import plural, size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

_T = TypeVar("_T")
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
MAPPED = "host.mapped"  # meta: rows of a Checkpoint
MALLOC = "host.malloc"  # meta: a Malloc
LOADERS = "host.loaders"  # meta: num_workers and prefetch_factor of each DataLoader
_FOREVER = 1 << 63
COPIES = ("DataLoader worker", "forked")  # they begin with the pages of their parent
LEAST_FILE = 64 << 20  # what is smaller is no checkpoint that matters
_READ = 0.6  # of a file that a process has a copy of: some of it may have been read before it was first seen
KINDS = ("anonymous", "shared_memory", "files")


def said(number: int) -> str:
    """1 process, 2 processes"""
    return "1 process" if number == 1 else f"{number:,} processes"


@dataclass(frozen=True, slots=True)
class ProcessPoint:
    """Bytes of a process at one moment. Private ones and what follows are None where pages were not looked at."""

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
    queued: int = 0  # in /dev/shm, made by a DataLoader's worker and not taken yet

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
    """A file of which processes have resident pages; one in /dev/shm that none has mapped has what it takes up."""

    path: str  # "": all that are not among the largest
    bytes: int  # of the process that has most of it
    pids: tuple[int, ...]
    code: bool = False  # a library or a program

    @property
    def is_shared_memory(self) -> bool:
        return self.path.startswith(SHARED_FOLDER)


@dataclass(frozen=True, slots=True)
class Copy:
    """What a process has of a file in memory of its own."""

    path: str
    pid: int
    bytes: int
    read: bool  # else mapped, and written to


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that the recorded process had mapped, at the last step at which this was looked at or at the end."""

    path: str
    bytes: int  # resident, when it was last seen mapped
    tensors: int  # bytes of those in it
    used: int  # of these, those that are part of a module
    copied: int  # of the others, those that a module has elsewhere, in layout
    format: bool  # it is a checkpoint by its first bytes


@dataclass(frozen=True, slots=True)
class Malloc:
    """What malloc kept of freed memory when the process ended."""

    free: int  # bytes, resident or not
    arenas: int  # of threads
    in_arenas: int  # bytes of the free ones that lie there
    returned: int  # resident bytes that malloc_trim gave back, tried


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
    copies: tuple[Copy, ...] = ()  # of files of 64 MiB and more
    mapped: tuple[Checkpoint, ...] = ()
    malloc: Malloc | None = None  # None: the process went on, was killed, or has another malloc
    unseen: int = 0  # processes of the machine that were not looked at, at most
    batches: int | None = None  # that DataLoaders have ready at most; None: not known

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


def of_samples(samples: Sequence[Any], start_ns: int, notes: Mapping[str, str] = MappingProxyType({})) -> Host | None:
    """samples: as _core.tree_samples gives them. start_ns: the wall clock at time 0. None: there are none."""
    rows: dict[tuple[int, int], list[Any]] = {}
    points: dict[tuple[int, int], list[ProcessPoint]] = {}
    files: Sequence[tuple[int, int, str, int, bool]] = ()
    samples = [one for one in samples if one[5]]  # none of ours is empty
    for realtime, _, _, _, _, processes, looked, *_ in samples:
        files = files if looked is None else looked
        for row in {(row[0], row[2]): row for row in processes}.values():
            if row[5] is not None:
                rows[row[0], row[2]] = row
                points.setdefault((row[0], row[2]), []).append(_point(max(0, realtime - start_ns), *row[5:8]))
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
        _noted(notes, DATASETS, lambda rows: tuple(_attribute(*row) for row in rows)) or (),
        tuple(_copies(samples, start_ns, points)),
        _noted(notes, MAPPED, lambda rows: tuple(_checkpoint(root, samples, *row) for row in rows)) or (),
        _noted(notes, MALLOC, lambda row: Malloc(*map(int, row)) if row else None),
        max(one[8] for one in samples),
        _noted(notes, LOADERS, lambda rows: max((int(workers) * int(ahead) for workers, ahead in rows), default=None)),
    )


def _point(time_ns: int, status: Sequence[int], rollup: Sequence[int] | None, queued: int) -> ProcessPoint:
    of_status = ProcessPoint(time_ns, *status, queued=queued)  # type: ignore[misc]  # mypy cannot count the four sizes
    if rollup is None:
        return of_status
    clean, dirty, shared_clean, shared_dirty, pss, pss_anonymous, pss_files, _ = rollup
    return replace(
        of_status,
        private=clean + dirty,
        shared=shared_clean + shared_dirty,
        proportional=pss,
        proportional_anonymous=pss_anonymous,
        proportional_files=pss_files,
    )


def _copies(
    samples: Sequence[Any], start_ns: int, points: Mapping[tuple[int, int], Sequence[ProcessPoint]]
) -> Iterator[Copy]:
    """Of a file that was read: by how much the process grew while it had it open, at most the file's size."""
    mapped: dict[tuple[str, int], int] = {}
    opened: dict[tuple[str, int], tuple[int, int, int]] = {}  # bytes; when it was first and last seen open
    for realtime, *_, files, loaded, _ in samples:
        for pid, _, path, copied, _ in files or ():
            mapped[path, pid] = max(copied, mapped.get((path, pid), 0))
        for pid, bytes_, path, *_ in loaded:
            time = max(0, realtime - start_ns)
            _, first, _ = opened.get((path, pid), (0, time, 0))
            opened[path, pid] = bytes_, first, time
    yield from (Copy(path, pid, bytes_, False) for (path, pid), bytes_ in mapped.items() if bytes_ >= LEAST_FILE)
    rows = {pid: rows for (pid, _), rows in points.items()}  # a pid that was used again: the later one
    for (path, pid), (bytes_, first, last) in opened.items():
        of = rows.get(pid, ())
        before = [point.anonymous for point in of if point.time_ns < first] or [
            point.anonymous for point in of if point.time_ns == first
        ]
        behind = [point.anonymous for point in of if point.time_ns > last]
        inside = [point.anonymous for point in of if first <= point.time_ns <= last]
        # What is open to the end is read piece by piece: a data set, and what grows beside it is something else.
        if before and behind and max(inside + behind[:1]) - before[-1] >= _READ * bytes_:
            yield Copy(path, pid, bytes_, True)


def _files(rows: Sequence[tuple[int, int, str, int, bool]]) -> tuple[MappedFile, ...]:
    by_path: dict[str, list[tuple[int, int, bool]]] = {}
    for pid, bytes_, path, _, code in rows:
        by_path.setdefault(path, []).append((pid, bytes_, code))
    made = [
        MappedFile(
            path,
            max(bytes_ for _, bytes_, _ in of),
            tuple(pid for pid, _, _ in of if pid),
            any(code for _, _, code in of),
        )
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
    # What was tried when the process ended is no part of a window within.
    notes = {key: text for key, text in report.environment.items() if key != MALLOC or not report.window}
    return of_samples(chosen, start, notes) if chosen else None


def _noted(notes: Mapping[str, str], key: str, read: Callable[[Any], _T]) -> _T | None:
    """What the process has noted in the trace, whatever it holds. None: nothing, or it is damaged."""
    try:
        return read(json.loads(notes.get(key) or "[]"))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None


def _attribute(dataset: Any, path: Any, kind: Any, items: Any, bytes_: Any) -> Attribute:
    return Attribute(str(dataset), str(path), str(kind), int(items), int(bytes_))


def _checkpoint(
    root: int, samples: Sequence[Any], path: Any, tensors: Any, used: Any, copied: Any, known: Any
) -> Checkpoint:
    resident = [row[1] for one in samples for row in one[6] or () if row[0] == root and row[2] == path]
    return Checkpoint(str(path), (resident or [0])[-1], int(tensors), int(used), int(copied), bool(known))
