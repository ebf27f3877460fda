"""Names of temporary files, and the removal of those that killed processes have left.

Such a name identifies its owner: machine (since when it runs), process namespace, process and its time of birth. A file
that lies beside a trace for a while is only removed when that process is known to be gone; one of another machine, or
of the same before it was started again, when it was not written to for a week. A temporary trace (a profile without a
name) of a process that is gone stays for a week, too. No other trace has such a name. Standard library that Python has
loaded by itself only.
"""

import os
import stat
import time

from cuptimem.errors import own

# No name that `run` makes up begins with a dot.
_PREFIX, _TEMPORARY, _SUFFIX = ".cuptimem-aside-", ".cuptimem-temporary-", ".cmem"
_SIDE = ".tail"  # what csrc/trace/side_file.h adds to a trace's name
_KEEP_SECONDS = 7 * 24 * 3600


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except own(OSError):
        return ""


def _machine() -> str:
    """Which run of which machine, and which of its process namespaces; "" where that is unknown."""
    boot = _text("/proc/sys/kernel/random/boot_id").strip().replace("-", "")
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except own(OSError):
        return ""
    return f"{boot}.{namespace}" if boot.isalnum() else ""


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, behind the name."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def birth(pid: int) -> str:
    """When the process was started, in ticks; "" if there is none."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 else ""


def parent(pid: int) -> int:
    """The process that started it or took it over; 0 if there is none."""
    fields = _fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _owned(folder: str, prefix: str) -> str:
    pid = os.getpid()
    owner = f"{_machine() or 'unknown.0'}.{pid}.{birth(pid) or 0}"
    return os.path.join(folder, f"{prefix}{owner}.{os.urandom(4).hex()}{_SUFFIX}")


def name(folder: str) -> str:
    """A new file's path in folder, for this process and as long as it lives."""
    return _owned(folder, _PREFIX)


def temporary_name(folder: str) -> str:
    """The same for a trace that its user has given no name."""
    return _owned(folder, _TEMPORARY)


def _is_left(file: str, path: str) -> bool:
    prefix = _PREFIX if file.startswith(_PREFIX) else _TEMPORARY
    parts = file[len(prefix) : -len(_SUFFIX)].split(".")  # boot, namespace, pid, birth, random
    if len(parts) != 5 or not (parts[2].isascii() and parts[2].isdigit()):
        return False
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    old = time.time() - status.st_mtime > _KEEP_SECONDS
    machine = _machine()
    if machine and f"{parts[0]}.{parts[1]}" == machine and parts[3] != "0":
        return birth(int(parts[2])) != parts[3] and (old or prefix == _PREFIX)
    return old


def sweep(folder: str) -> int:
    """Removes the files of processes that are gone. How many; never raises."""
    removed = 0
    try:
        files = os.listdir(folder)
    except own(OSError):
        return 0
    for file in files:
        if not file.startswith((_PREFIX, _TEMPORARY)) or not file.endswith(_SUFFIX):
            continue
        path = os.path.join(folder, file)
        try:
            if _is_left(file, path):
                os.unlink(path)
                removed += 1
                if file.startswith(_TEMPORARY):
                    os.unlink(path + _SIDE)
        except own(OSError, ValueError):  # another process was faster, there is no permission, or no side file
            continue
    return removed
