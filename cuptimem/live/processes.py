"""Which processes write traces, and how they are, by /proc."""

import os
from collections.abc import Iterator

from cuptimem.naming import MAGIC

_STATES = {"T": "is stopped", "t": "is stopped", "D": "waits for a device", "Z": "is gone", "X": "is gone"}
_WRITES = os.O_WRONLY | os.O_RDWR


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name; none: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return []


def state_of(pid: int | None, owner: str) -> str:
    """What to say of it: "runs", "is stopped", "waits for a device", "is gone"; "unknown": it is of another pid
    namespace. owner: as the trace has it: pid, start in ticks, pid namespace."""
    _, start, namespace = (*owner.split(), "", "", "")[:3]
    if pid is None or (namespace and namespace != _namespace()):
        return "unknown"
    fields = _stat(pid)
    if not fields or (start and start != fields[19]):
        return "is gone"
    return _STATES.get(fields[0], "runs")


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def resident(pid: int) -> int | None:
    """Resident bytes of a process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def traces_of(pid: int) -> list[str]:
    """The traces that a process has open for writing, by name. Raises OSError where it may not be looked at."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if path.startswith("/") and _is_written(pid, number) and _is_trace(path):
                found.append(path)
        except OSError:  # it was closed meanwhile
            continue
    return sorted(set(found))


def _is_written(pid: int, number: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & _WRITES)


def _is_trace(path: str) -> bool:
    status = os.lstat(path)
    if not os.path.isfile(path) or status.st_size < len(MAGIC):
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def descendants(pid: int) -> Iterator[int]:
    """Children, their children, ..."""
    parents: dict[int, list[int]] = {}
    for other in every():
        fields = _stat(other)
        if fields:
            parents.setdefault(int(fields[1]), []).append(other)
    waiting = list(parents.get(pid, ()))
    while waiting:
        one = waiting.pop(0)
        yield one
        waiting += parents.get(one, ())


def every() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def recorded() -> list[tuple[int, str]]:
    """The processes that write a trace now, as far as they may be looked at, with it."""
    found = []
    for pid in every():
        try:
            found += [(pid, path) for path in traces_of(pid)]
        except OSError:  # of another user, or it has ended
            continue
    return found
