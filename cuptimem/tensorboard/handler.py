"""cuptimem.tensorboard_handler: what a profile does at the end of a cycle, for TensorBoard."""

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cuptimem.errors import Error
from cuptimem.record import recorder, role
from cuptimem.tensorboard import picture, scalars, writing

if TYPE_CHECKING:
    from cuptimem.record.profiler import Profile
    from cuptimem.report.model import Report

_MISSING = "tensorboard is not installed, so nothing can be written for it: pip install tensorboard"


def tensorboard_handler(logdir: str | os.PathLike[str], worker_name: str | None = None) -> "Callable[[Profile], None]":
    """What to give to profile(on_trace_ready=...), so that TensorBoard shows the memory of each cycle.

        handler = cuptimem.tensorboard_handler("runs/one")
        with cuptimem.profile(schedule=cuptimem.schedule(wait=90, warmup=2, active=8), on_trace_ready=handler) as prof:
            for batch in loader:
                train_step(batch)
                prof.step()

    It can also be called with a profile behind its block. Writes scalars per step and device (Memory/Allocated,
    Memory/Reserved, Memory/Peak, Memory/Leaked) and what the Memory page shows. Given the folder of a SummaryWriter,
    both are one run. With more than one process (WORLD_SIZE) each writes into a subfolder: rank0, rank1, ...

    logdir       the run's folder, which is made
    worker_name  of this process in file names (host_pid)

    Raises Error where the package tensorboard is missing or the folder cannot be made: now, not after an hour of
    training. From then on it never raises for what it writes; an error is one warning.
    """
    return _Handler(os.fspath(logdir), worker_name)


class _Handler:
    def __init__(self, logdir: str, worker_name: str | None) -> None:
        require_tensorboard()
        self._logdir = os.path.abspath(logdir)
        try:
            os.makedirs(self._logdir, exist_ok=True)
        except OSError as error:
            raise Error(f"{self._logdir} cannot be made: {error.strerror}") from None
        self._worker = worker_name
        self._window: Any = None  # of the last call
        self._name = ""
        self._first = 0
        self._last = -1  # the last step of the program that has been written

    def __call__(self, profile: "Profile") -> None:
        try:
            self._write(profile)
        except Exception as error:  # whatever it is, the training goes on
            what = "" if isinstance(error, (Error, OSError)) else f"{type(error).__name__}: "
            recorder.say(f"TensorBoard gets nothing of this cycle: {what}{error}")

    def _write(self, profile: "Profile") -> None:
        run = profile._current()
        window = run.window if run is not None else None
        report = profile.report
        worker = worker_name(report, self._worker)
        if window is not self._window or window is None:
            # prof.step() counts the program's steps. Another clock does not know of earlier cycles: its count goes on.
            self._window, self._name = window, f"{worker}.{time.time_ns()}"
            self._first = max(profile.first_step, self._last + 1)
        folder = run_folder(self._logdir, report, role.of_group())
        write(report, folder, worker, self._name, self._first, self._last)
        self._last = max([self._last, *(self._first + step.index for step in report.steps.ended)])


def require_tensorboard() -> None:
    """Raises Error, one line, where TensorBoard's package is missing or does not load."""
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        missing = getattr(error, "name", None) in (None, "tensorboard")
        raise Error(_MISSING if missing else f"{_MISSING} (tensorboard does not load: {error})") from None


def run_folder(logdir: str, report: "Report", known: Mapping[str, str] = MappingProxyType({})) -> str:
    """The folder of this process's run: ranks of one program are runs of their own. known: of the process's group,
    what the recording may not yet say."""
    environment = {**report.environment, **known}
    rank, world = environment.get("rank", ""), environment.get("world_size", "")
    # A trace may say anything: Python refuses to read a number of thousands of digits.
    several = rank.isdecimal() and len(rank) < 10 and (not world.isdecimal() or world.lstrip("0") not in ("", "1"))
    return os.path.join(logdir, f"rank{int(rank)}") if several else logdir


def worker_name(report: "Report", chosen: str | None = None) -> str:
    """host_pid, as torch.profiler names files; without what has a meaning in a path."""
    environment = report.environment
    name = chosen or f"{environment.get('host', socket.gethostname())}_{environment.get('pid', os.getpid())}"
    return re.sub(r"[^\w.=+-]", "_", name)[:100].lstrip(".") or "worker"


def write(
    report: "Report", folder: str, worker: str, name: str, first_step: int, after: int = -1, *, drawn: bool = True
) -> None:
    """One recording into one run. Scalars first: they are the smaller part. drawn: with the timeline's picture, for
    which the trace is read again; without one the page has a curve."""
    os.makedirs(folder, exist_ok=True)
    if report.steps.ended:
        scalars.append(os.path.join(folder, scalars.file_name(worker)), report, first_step, after)
    chart = picture.of(report, first_step) if drawn and report.devices else None
    writing.write(report, folder, name, first_step, chart)
