"""What a process is among those of its program: a worker of a DataLoader, a process of multiprocessing, a fork.

Runs inside the profiled process: uses only modules that the program has loaded.
"""

import os
import sys
import time

from cuptimem import environ, naming, tempfiles
from cuptimem.errors import own

_GROUP = "torch.distributed"  # without is_initialized in a build that has no groups
_WORKER = "torch.utils.data._utils.worker"  # its _worker_info is set once a worker's loop has begun


def _worker_number() -> int | None:
    """The number of a DataLoader's worker, also before its loop has begun; else None."""
    info = getattr(sys.modules.get(_WORKER), "_worker_info", None)
    if info is not None:
        number = getattr(info, "id", None)
        return number if isinstance(number, int) else None
    process = getattr(sys.modules.get("multiprocessing.process"), "_current_process", None)
    target = getattr(process, "_target", None)
    if getattr(target, "__module__", None) != _WORKER:
        return None
    code, arguments = getattr(target, "__code__", None), getattr(process, "_args", ())
    if code is None or "worker_id" not in code.co_varnames:
        return None
    at = code.co_varnames.index("worker_id")
    return arguments[at] if at < len(arguments) and isinstance(arguments[at], int) else None


def of_this_process(parent: int) -> str:
    """ "worker 2 of a DataLoader", "process SpawnPoolWorker-3", "forked by process 4711"; "" for the program itself.

    parent: the process that forked this one, 0 if none did.
    """
    worker = _worker_number()
    if worker is not None:
        return f"worker {worker} of a DataLoader"
    name = _multiprocessing_name()
    if name is not None:
        return f"process {name}"
    return f"forked by process {parent}" if parent else ""


def _multiprocessing_name() -> str | None:
    """The name of a process that multiprocessing has started; else None."""
    process = getattr(sys.modules.get("multiprocessing.process"), "_current_process", None)
    name = getattr(process, "_name", "MainProcess")
    is_child = name != "MainProcess" and getattr(process, "_parent_pid", None) is not None
    return str(name) if is_child else None


def of_group() -> dict[str, str]:
    """The rank and the world of torch.distributed's process group, as notes; {} where there is none, or one process."""
    group = sys.modules.get(_GROUP)
    is_there = getattr(group, "is_initialized", None)
    if group is None or is_there is None or not is_there() or group.get_world_size() < 2:
        return {}
    return {"rank": str(group.get_rank()), "world_size": str(group.get_world_size())}


def script() -> str:
    """Of a process that multiprocessing has started afresh: the script whose functions it runs; else ""."""
    return getattr(sys.modules.get("__mp_main__"), "__file__", None) or ""


_imported_by = os.getpid()


def is_one_of_several() -> bool:
    """Whether this process is a rank, or was forked or started by multiprocessing: others may run the same lines."""
    if os.getpid() != _imported_by or _multiprocessing_name() is not None:
        return True
    return naming.rank_of(environ.obeyed()) is not None


def _first_process() -> int:
    """The process that the program began with, as far as it is known: workers, and the server of "forkserver", start
    after files that their children must not replace."""
    if not is_one_of_several():
        return os.getpid()
    process = getattr(sys.modules.get("multiprocessing.process"), "_current_process", None)
    pid = getattr(process, "_parent_pid", None) or os.getppid()
    while (above := tempfiles.parent(pid)) > 1 and _runs_this_python(above):
        pid = above
    return pid


def _runs_this_python(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.readlink("/proc/self/exe")
    except own(OSError):  # it has gone, or is another user's
        return False


def is_of_this_run(path: str) -> bool:
    """Whether the file was written since the program began."""
    try:
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(tempfiles.birth(_first_process())) / os.sysconf(
            "SC_CLK_TCK"
        )
        return time.time() - os.lstat(path).st_mtime <= age
    except own(OSError, ValueError):  # the process or the file has gone: leave what is there alone
        return True
