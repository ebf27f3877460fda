"""What happens in a simulated process besides the program itself: assumed sizes, and a note of how it ended.

Started by cuptimem.pth where CUPTIMEM_SIM_CHILD names the folder of a run (launch.py): child.settings in it has the
options, and this process writes child-<pid>.note, a literal of Python. Until torch is imported nothing is
imported that Python has not loaded by itself, and nothing when it ends: a script in a folder that shadows a standard
module gets its own. The program comes first, so whatever fails here becomes a line in the note.
"""

from __future__ import annotations

import os
import stat
import sys

from cuptimem import environ
from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every simulated program

if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Any

    from cuptimem.simulation.computed import Computed
    from cuptimem.simulation.data_sizes import Assumed
    from cuptimem.simulation.host_reads import HostReads
    from cuptimem.simulation.longest import Longest

VARIABLE = "CUPTIMEM_SIM_CHILD"
OFF = "CUPTIMEM_SIM_VALUES"  # "0": nothing is computed, for tests that compare
SETTINGS = "child.settings"
CRASH = "crash"  # faulthandler's output
COLLECTED_SHARE = 16  # of a device: how much more of tensors makes Python collect its garbage, where that is tried
WHERE = "where"  # the stack when the time was up

_CHAIN = 8  # exceptions of a chain that are noted
_THREADS = 8  # ended by an exception, that are noted


class _Child:
    def __init__(self, folder: str, settings: dict[str, str], leader: bool) -> None:
        from cuptimem.record.late_import import ImportWatch

        self.folder = folder
        self.settings = settings
        self.pid = os.getpid()
        self.leader = leader  # the program itself, not a process that it started
        self.problems: list[str] = []
        self.torch: ModuleType | None = None
        self.assumed: Assumed | None = None
        self.reads: HostReads | None = None
        self.computed: Computed | None = None
        self.longest: Longest | None = None
        self.threads: list[dict[str, Any]] = []
        watched = {"torch": self._torch_loaded, "threading": self._threading_loaded}
        if "longest" in settings:
            watched["torch.utils.data.dataloader"] = self._dataloader_loaded
        if "world.size" in settings:
            watched["deepspeed"] = self._deepspeed_loaded
        self.watch = ImportWatch(watched, self._failed)

    def _torch_loaded(self, torch: ModuleType) -> None:
        from cuptimem.errors import recording_core
        from cuptimem.simulation import fake_group
        from cuptimem.simulation.computed import Computed
        from cuptimem.simulation.data_sizes import Assumed
        from cuptimem.simulation.elements import passed_over
        from cuptimem.simulation.host_reads import HostReads

        self.torch, self.passed_over = torch, passed_over
        given = {name[7:]: float(value) for name, value in self.settings.items() if name.startswith("assume.")}
        self.assumed = Assumed(given, self.settings["high_end"] == "1", self.write)
        branches, integers = self.settings["other_branches"] == "1", int(self.settings["other_integers"])
        pinned = frozenset(name[4:] for name in self.settings if name.startswith("pin."))
        self.reads = HostReads(branches, integers, pinned, self.write, lambda: _allocated(torch))
        self.computed = Computed(torch, recording_core(), self.reads, self.assumed.routing)
        self.assumed.install(torch, self.computed, environ.get(OFF) != "0")
        self.reads.install(torch)
        if self.settings["collects"] == "1":
            _collect_where_it_grows(torch)
        try:
            fake_group.install(torch)
        except own(AttributeError) as error:
            self.problems.append(f"DistributedDataParallel is not prepared for the fake process group: {error}")
        if "world.size" in self.settings:
            from cuptimem.simulation import fake_world

            rank, size = int(self.settings["world.rank"]), int(self.settings["world.size"])
            try:
                fake_world.install(torch, self.settings["world.folder"], rank, size)
            except own(AttributeError) as error:
                self.problems.append(f"ranks are not prepared for this version of torch: {error}")

    def _dataloader_loaded(self, dataloader: ModuleType) -> None:
        from cuptimem.errors import recording_core
        from cuptimem.simulation.longest import Longest

        self.longest = Longest(sys.modules["torch"], recording_core(), int(self.settings["longest"]))
        self.longest.install(dataloader)

    def _deepspeed_loaded(self, deepspeed: ModuleType) -> None:
        from cuptimem.simulation import fake_world

        fake_world.prepare_deepspeed(deepspeed)

    def _threading_loaded(self, threading: ModuleType) -> None:
        """Notes exceptions in threads: they do not end the program, but leave the thread's work undone."""
        before = threading.excepthook

        def excepthook(args: Any) -> None:
            if args.exc_value is not None and args.exc_type is not SystemExit and len(self.threads) < _THREADS:
                self.threads.append(_described(args.exc_value))
            before(args)

        # typeshed has no such attribute of a ModuleType, and a better type would import threading before the program.
        threading.excepthook = excepthook  # type: ignore[attr-defined]

    def _failed(self, what: str, error: Exception) -> None:
        self.problems.append(f"values are not computed, sizes not assumed: {type(error).__name__}: {error}")

    def forked(self) -> None:
        self.leader = False
        self.pid = os.getpid()
        self.threads.clear()
        if self.assumed is not None:
            self.assumed.used.clear()
        if self.reads is not None:
            self.reads.clear()

    def write(self, ended: bool = False) -> None:
        """Writes the note whole or not at all: it may be read at any time."""
        note: dict[str, Any] = {
            "pid": self.pid,
            "leader": self.leader,
            "assumptions": [] if self.assumed is None else self.assumed.rows(),
            "reads": [] if self.reads is None else self.reads.rows(),
            "reads_dropped": 0 if self.reads is None else self.reads.dropped,
            "ended": ended,
            "exception": None,
            "threads": self.threads,
            "cuda": None,
        }
        if ended:
            try:
                note["exception"] = _exception()
                note["cuda"] = None if self.torch is None else _cuda(self.torch, self.passed_over())
            except own(Exception) as error:  # of a program that is ending, nothing is certain
                self.problems.append(f"how it ended is not known: {type(error).__name__}: {error}")
        note["problems"] = [
            *self.problems,
            *([] if self.longest is None else self.longest.said()),
            *([] if self.computed is None else self.computed.problems()),
        ]
        path = os.path.join(self.folder, f"child-{self.pid}.note")
        try:
            with open(made(f"{path}.new"), "w", encoding="utf-8") as file:
                file.write(repr(note))
            os.replace(f"{path}.new", path)
        except own(OSError) as error:
            from cuptimem.printable import printable  # rarely needed

            print(f"cuptimem: {printable(path)} cannot be written: {error.strerror}", file=sys.stderr)

    def at_exit(self) -> None:
        if os.getpid() == self.pid:
            self.write(ended=True)


def start(folder: str) -> None:
    """Starts it in this process. Raises OSError or ValueError where the folder is not what it should be."""
    import atexit

    with open(own_file(os.path.join(folder, SETTINGS)), encoding="utf-8") as file:
        pairs = (line.rstrip("\n").rpartition("=") for line in file)  # a file's name may have one, too
        settings = {name: value for name, _, value in pairs}
    leader = os.getppid() == int(settings["parent"])
    child = _Child(folder, settings, leader)
    if leader:
        _watch_for_trouble(folder, float(settings["timeout"]))
    child.write()  # a process that crashes has left its note
    child.watch.start()
    # Registered before anything of the program's, so it runs after everything of the program's.
    atexit.register(child.at_exit)
    os.register_at_fork(after_in_child=child.forked)


def _watch_for_trouble(folder: str, timeout: float) -> None:
    """Keeps Python's report of a crash, and the stacks when the time is up, off the program's standard error."""
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable(_open(folder, CRASH), all_threads=False)
    if timeout:
        faulthandler.dump_traceback_later(timeout, exit=False, file=_open(folder, WHERE))


_files: list[int] = []  # as long as the process lives


def _open(folder: str, name: str) -> int:
    descriptor = made(os.path.join(folder, name))
    _files.append(descriptor)
    return descriptor


def own_file(path: str) -> int:
    """Opens a regular file of this user's to read. Raises OSError for anything else: a link is not followed, a pipe
    not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
        os.close(descriptor)
        raise OSError(f"{path} is not a file of this user")
    return descriptor


def made(path: str) -> int:
    """Makes a file to write, in place of one that this process's earlier program has left. Raises OSError."""
    if os.path.lexists(path):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _allocated(torch: ModuleType) -> int:
    """Bytes in tensors, of all devices."""
    return sum(torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count()))


def _collect_where_it_grows(torch: ModuleType) -> None:
    """Has Python's collector run whenever a device's tensors have grown by a sixteenth of its memory since.

    In the main thread, as soon as that runs Python's code again.
    """
    import gc

    from cuptimem.errors import recording_core

    core, cuda = recording_core(), torch.cuda
    share = int(environ.get("CUPTIMEM_SIM_MEMORY") or 0) // COLLECTED_SHARE

    def collect() -> None:
        gc.collect()
        most = max(cuda.memory_allocated(index) for index in range(cuda.device_count()))
        core.main_thread_call_when_grown(collect, most + share)

    core.main_thread_call_when_grown(collect, share)


def _exception() -> list[dict[str, Any]] | None:
    """The exception that ended the program, with those it was raised from; None where it was none."""
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        return None
    chain: list[dict[str, Any]] = []
    while error is not None and len(chain) < _CHAIN:
        chain.append(_described(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return chain


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "bases": [base.__qualname__ for base in kind.__mro__],
        "message": str(error).strip()[:2000],
        "at": _innermost(error.__traceback__, False),
        "inner": _innermost(error.__traceback__, True),
    }


def _innermost(traceback: TracebackType | None, library: bool) -> list[Any] | None:
    """File, line and function of the user's own innermost frame, or of the innermost of all."""
    from cuptimem.simulation.places import is_library

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    found: list[Any] | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        ours = code.co_filename.startswith(package)
        if not ours and (found is None or library or not is_library(code.co_filename)):
            found = [code.co_filename, traceback.tb_lineno, code.co_qualname]
        traceback = traceback.tb_next
    return found


def _cuda(torch: ModuleType, passed_over: int) -> dict[str, Any]:
    """What PyTorch's allocator counted. The program may have reset its peaks: the trace has them whole."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return {"initialized": False}
    describe = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    devices = []
    for index in range(cuda.device_count()):
        try:
            stats = cuda.memory_stats(index)
        except own(RuntimeError):  # an allocator that keeps none
            continue
        devices.append(
            {
                "index": index,
                "ooms": stats.get("num_ooms", 0),
                "retries": stats.get("num_alloc_retries", 0),
                "allocated_peak": stats.get("allocated_bytes.all.peak", 0),
                "reserved_peak": stats.get("reserved_bytes.all.peak", 0),
            }
        )
    return {
        "initialized": True,
        "backend": cuda.get_allocator_backend(),
        "settings": describe() if describe is not None else None,
        "passed_over": passed_over,
        "devices": devices,
    }
